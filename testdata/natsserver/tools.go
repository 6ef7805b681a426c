//go:build tools

// Package natsserver pins the server's command, so that `go mod tidy` keeps it.
package natsserver

import _ "github.com/nats-io/nats-server/v2"
