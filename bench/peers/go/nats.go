package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// natsSystem has a connection for each agent, as agents that are programs of their own would.
type natsSystem struct {
	lock        sync.Mutex
	connections []*nats.Conn
}

type natsSettings struct {
	URL         string `json:"url"`
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

type natsSender struct {
	connection *nats.Conn
	subject    string
	// dial connects, if the scenario connects only at the first question.
	dial func() (*nats.Conn, error)
}

func (n *natsSystem) client() string { return "nats.go " + nats.Version }

func (n *natsSystem) dial(o order) (*nats.Conn, error) {
	var settings natsSettings
	if err := json.Unmarshal(o.System, &settings); err != nil {
		return nil, err
	}
	options := []nats.Option{nats.Timeout(10 * time.Second)}
	if settings.Authority != "" {
		options = append(options, nats.RootCAs(settings.Authority),
			nats.ClientCert(settings.Certificate, settings.Key))
	}
	connection, err := nats.Connect(settings.URL, options...)
	if err == nil {
		n.lock.Lock()
		n.connections = append(n.connections, connection)
		n.lock.Unlock()
	}
	return connection, err
}

func (n *natsSystem) connect(o order, got func(int, []byte), answered func()) ([]sender, error) {
	// The instrument plays one cell at a time, so that names need not differ between runs.
	subject := func(receiver int) string {
		switch o.Scenario.Shape {
		case "broadcast":
			return "all"
		case "many_to_one":
			receiver = 0
		}
		return fmt.Sprintf("agent.%d", receiver)
	}
	if o.Role == "receive" {
		return nil, n.listen(o, subject, got, answered)
	}
	var senders []sender
	for number := range o.Scenario.Senders {
		s := &natsSender{subject: subject(number), dial: func() (*nats.Conn, error) { return n.dial(o) }}
		if !o.Scenario.FirstContact {
			connection, err := n.dial(o)
			if err != nil {
				return nil, err
			}
			s.connection = connection
		}
		senders = append(senders, s)
	}
	return senders, nil
}

func (n *natsSystem) listen(o order, subject func(int) string, got func(int, []byte), answered func()) error {
	for receiver := range o.Scenario.Receivers {
		connection, err := n.dial(o)
		if err != nil {
			return err
		}
		subscription, err := connection.Subscribe(subject(receiver), func(message *nats.Msg) {
			if o.Scenario.Kind == "stream" {
				got(receiver, message.Data)
			} else if err := message.Respond(message.Data); err == nil {
				answered()
			}
		})
		if err != nil {
			return err
		}
		// A receiver that is slow for a moment is not cut off.
		if err := subscription.SetPendingLimits(-1, -1); err != nil {
			return err
		}
		if err := connection.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (n *natsSystem) leave() {
	for _, connection := range n.connections {
		connection.Close()
	}
}

func (s *natsSender) send(content []byte) error { return s.connection.Publish(s.subject, content) }

// The client's writer flushes by itself, at once when it is idle.
func (s *natsSender) flush() error { return nil }

func (s *natsSender) ask(content []byte) ([]byte, error) {
	if s.connection == nil {
		connection, err := s.dial()
		if err != nil {
			return nil, err
		}
		s.connection = connection
	}
	answer, err := s.connection.Request(s.subject, content, 20*time.Second)
	if err != nil {
		return nil, err
	}
	return answer.Data, nil
}
