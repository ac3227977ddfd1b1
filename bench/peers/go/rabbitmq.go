package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitSystem follows the paper: a direct exchange whose routing key is the agent, a queue for each agent; for a broadcast a fanout
// exchange and a queue for each subscriber. Messages are transient and taken without acknowledgement, as the paper's figures need it.
type rabbitSystem struct {
	connections []*amqp.Connection
}

type rabbitSettings struct {
	URL         string `json:"url"`
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	// With a certificate the broker checks that the sender named in a message is the user who is logged in.
	User string `json:"user"`
	// The settings in which senders and receivers differ.
	Sides map[string]json.RawMessage `json:"sides"`
}

type rabbitSender struct {
	channel       *amqp.Channel
	exchange, key string
	user          string
	answers       <-chan amqp.Delivery
}

func (r *rabbitSystem) client() string { return "amqp091-go 1.16.0" }

func (r *rabbitSystem) dial(settings rabbitSettings) (*amqp.Channel, error) {
	config := amqp.Config{Locale: "en_US"}
	if settings.Authority != "" {
		authority, err := os.ReadFile(settings.Authority)
		if err != nil {
			return nil, err
		}
		own, err := tls.LoadX509KeyPair(settings.Certificate, settings.Key)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		config.TLSClientConfig = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
		config.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
	}
	connection, err := amqp.DialConfig(settings.URL, config)
	if err != nil {
		return nil, err
	}
	r.connections = append(r.connections, connection)
	return connection.Channel()
}

func (r *rabbitSystem) connect(o order, got func(int, []byte), answered func()) ([]sender, error) {
	var settings rabbitSettings
	if err := json.Unmarshal(o.System, &settings); err != nil {
		return nil, err
	}
	if side, ok := settings.Sides[o.Role]; ok {
		if err := json.Unmarshal(side, &settings); err != nil {
			return nil, err
		}
	}
	// One server serves one cell after the other: exchanges stay, queues go with their connection.
	exchange, kind := "agents", "direct"
	if o.Scenario.Shape == "broadcast" {
		exchange, kind = "topic", "fanout"
	}
	if o.Role == "receive" {
		return nil, r.listen(o, settings, exchange, kind, got, answered)
	}
	var senders []sender
	for number := range o.Scenario.Senders {
		channel, err := r.dial(settings)
		if err != nil {
			return nil, err
		}
		receiver := number
		if o.Scenario.Shape == "many_to_one" {
			receiver = 0
		}
		s := &rabbitSender{channel: channel, exchange: exchange, key: agent(receiver), user: settings.User}
		if o.Scenario.Kind != "stream" {
			// The documented way for answers: direct reply-to.
			s.answers, err = channel.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
			if err != nil {
				return nil, err
			}
		}
		senders = append(senders, s)
	}
	return senders, nil
}

func agent(receiver int) string { return fmt.Sprintf("agent-%d", receiver) }

func (r *rabbitSystem) listen(o order, settings rabbitSettings, exchange, kind string, got func(int, []byte), answered func()) error {
	for receiver := range o.Scenario.Receivers {
		channel, err := r.dial(settings)
		if err != nil {
			return err
		}
		if err := channel.ExchangeDeclare(exchange, kind, false, false, false, false, nil); err != nil {
			return err
		}
		queue, err := channel.QueueDeclare("", false, true, true, false, nil)
		if err != nil {
			return err
		}
		if err := channel.QueueBind(queue.Name, agent(receiver), exchange, false, nil); err != nil {
			return err
		}
		deliveries, err := channel.Consume(queue.Name, "", true, true, false, false, nil)
		if err != nil {
			return err
		}
		go func() {
			for delivery := range deliveries {
				if o.Scenario.Kind == "stream" {
					got(receiver, delivery.Body)
					continue
				}
				reply := amqp.Publishing{Body: delivery.Body, UserId: settings.User}
				if err := channel.Publish("", delivery.ReplyTo, false, false, reply); err == nil {
					answered()
				}
			}
		}()
	}
	return nil
}

func (r *rabbitSystem) leave() {
	for _, connection := range r.connections {
		connection.Close()
	}
}

func (s *rabbitSender) send(content []byte) error {
	message := amqp.Publishing{Body: content, DeliveryMode: amqp.Transient, UserId: s.user}
	return s.channel.Publish(s.exchange, s.key, false, false, message)
}

func (s *rabbitSender) flush() error { return nil }

func (s *rabbitSender) ask(content []byte) ([]byte, error) {
	message := amqp.Publishing{Body: content, ReplyTo: "amq.rabbitmq.reply-to", UserId: s.user}
	if err := s.channel.Publish(s.exchange, s.key, false, false, message); err != nil {
		return nil, err
	}
	answer, ok := <-s.answers
	if !ok {
		return nil, fmt.Errorf("the broker closed the channel")
	}
	return answer.Body, nil
}
