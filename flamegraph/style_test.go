package flamegraph

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// palettes reads the colours out of the style sheet: class to colour, for the
// light and the dark scheme; "text" is the colour of labels.
func palettes(t *testing.T) (light, dark map[string]string) {
	t.Helper()
	l, d, ok := strings.Cut(styleCSS, "@media (prefers-color-scheme:dark){")
	if !ok {
		t.Fatal("the style sheet has no dark scheme")
	}
	rule := regexp.MustCompile(`\.cf (\.?[a-z0-9-]+)\{(?:fill|stroke):(#[0-9a-f]{6})[;}]`)
	read := func(css string) map[string]string {
		out := map[string]string{}
		for _, m := range rule.FindAllStringSubmatch(css, -1) {
			out[strings.TrimPrefix(m[1], ".")] = m[2]
		}
		return out
	}
	return read(l), read(d)
}

// luminance and contrast are WCAG 2's.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil || len(colour) != 7 {
		t.Fatalf("colour %q", colour)
	}
	lin := func(c uint64) float64 {
		s := float64(c&0xff) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*lin(v>>16) + 0.7152*lin(v>>8) + 0.0722*lin(v)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

var boxClasses = []string{
	"all", "mrg", "app", "lck", "net", "lib", "ker", "unk",
	"same", "f1", "f2", "f3", "g1", "g2", "g3", "gone-a", "gone-b", "new-a", "new-b",
}

func TestContrast(t *testing.T) {
	if c := contrast(t, "#000000", "#ffffff"); math.Abs(c-21) > 1e-9 {
		t.Fatalf("black on white = %v, want 21", c)
	}
	light, dark := palettes(t)
	for scheme, p := range map[string]map[string]string{"light": light, "dark": dark} {
		need := func(a, b string, least float64) {
			t.Helper()
			if p[a] == "" || p[b] == "" {
				t.Errorf("%s: no colour for %s or %s", scheme, a, b)
				return
			}
			if c := contrast(t, p[a], p[b]); c < least {
				t.Errorf("%s: %s (%s) on %s (%s) has contrast %.2f, want %v", scheme, a, p[a], b, p[b], c, least)
			}
		}
		for _, c := range boxClasses {
			need("text", c, 4.5)
			if c != "mrg" {
				need("ss", c, 1.5) // segments also differ by place and height
				need("sg", c, 1.5)
			}
		}
		need("text", "bg", 4.5)
		need("dim", "bg", 4.5)
		for _, c := range []string{"ss", "sg", "sc"} {
			need(c, "bg", 3)
		}
	}
}

// Every class that a picture can use has a colour in both schemes.
func TestEveryClassHasAColour(t *testing.T) {
	light, dark := palettes(t)
	classes := append([]string{"text", "dim", "bg", "ln", "sc", "ss", "sg"}, boxClasses...)
	for _, c := range kindClass {
		classes = append(classes, c)
	}
	for _, c := range classes {
		if light[c] == "" || dark[c] == "" {
			t.Errorf("class %s: light %q, dark %q", c, light[c], dark[c])
		}
	}
	for c := range light {
		if dark[c] == "" {
			t.Errorf("class %s has no dark colour", c)
		}
	}
	for _, c := range []string{step(0, 1, 0), step(1, 0, 0)} {
		if strings.Count(styleCSS, ".cf ."+c+"{fill:url(#cf-"+c+")") != 2 {
			t.Errorf("class %s is not hatched in both schemes", c)
		}
		if !strings.Contains(hatches, `id="cf-`+c+`"`) {
			t.Errorf("no hatch for %s", c)
		}
	}
}

// Grown and shrunk also differ for eyes that do not tell hues apart: blue and
// orange stay two colours under the common deficiencies, simulated with the
// matrices of Viénot, Brettel and Mollon (1999).
func TestColourBlindSafe(t *testing.T) {
	light, dark := palettes(t)
	protan := [3][3]float64{{0.11238, 0.88762, 0}, {0.11238, 0.88762, 0}, {0.00401, -0.00401, 1}}
	deutan := [3][3]float64{{0.29275, 0.70725, 0}, {0.29275, 0.70725, 0}, {-0.02234, 0.02234, 1}}
	for scheme, p := range map[string]map[string]string{"light": light, "dark": dark} {
		for eye, m := range map[string][3][3]float64{"protan": protan, "deutan": deutan} {
			for _, pair := range [][2]string{{"f1", "g1"}, {"f2", "g2"}, {"f3", "g3"}, {"ss", "sg"}, {"gone-a", "new-a"}} {
				if d := distance(t, p[pair[0]], p[pair[1]], m); d < 0.06 {
					t.Errorf("%s, %s: %s and %s are %.3f apart", scheme, eye, pair[0], pair[1], d)
				}
			}
		}
	}
}

// distance is between two colours in linear light as an eye sees them.
func distance(t *testing.T, a, b string, m [3][3]float64) float64 {
	t.Helper()
	var sum float64
	x, y := linear(t, a), linear(t, b)
	for i := range m {
		d := 0.0
		for j := range m[i] {
			d += m[i][j] * (x[j] - y[j])
		}
		sum += d * d
	}
	return math.Sqrt(sum)
}

func linear(t *testing.T, colour string) [3]float64 {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil {
		t.Fatalf("colour %q", colour)
	}
	var out [3]float64
	for i := range out {
		out[i] = math.Pow(float64(v>>(16-8*i)&0xff)/255, 2.2)
	}
	return out
}
