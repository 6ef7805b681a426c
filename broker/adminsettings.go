package broker

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// handleSettings serves settings that may change while the broker runs, under
// the paths and names that Pulsar's admin tools use.
func (s *Server) handleSettings(mux *http.ServeMux) {
	const base = "/admin/v2/brokers/configuration"
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) {
		names := make([]string, len(dynamicSettings))
		for i, d := range dynamicSettings {
			names[i] = d.name
		}
		writeJSON(w, names)
	})
	mux.HandleFunc("GET "+base+"/values", func(w http.ResponseWriter, _ *http.Request) {
		now := s.settings.current.Load()
		values := make(map[string]string, len(dynamicSettings))
		for _, d := range dynamicSettings {
			values[d.name] = strconv.FormatInt(d.get(now), 10)
		}
		writeJSON(w, values)
	})
	mux.HandleFunc("POST "+base+"/{name}/{value}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.ChangeSetting(r.PathValue("name"), r.PathValue("value")))
	})
	mux.HandleFunc("DELETE "+base+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.ResetSetting(r.PathValue("name")))
	})
}

// answer ends a change: nothing to say, or why it was refused.
func answer(w http.ResponseWriter, err error) {
	if err != nil {
		reason(w, http.StatusPreconditionFailed, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// reason answers with an error as Pulsar's admin server does.
func reason(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"reason": err.Error()})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went away
}
