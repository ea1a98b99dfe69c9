// Jobs with redigo.
//
//	go run jobs.go add QUEUE BODY...   adds a job for each body, and prints their ids
//	go run jobs.go work QUEUE          does the jobs, until SIGTERM and the end of the current job
//
// DISQUE_NODES="host:port host:port" names nodes of the cluster, DISQUE_PASSWORD is their password.
// (First run go mod init jobs && go get github.com/gomodule/redigo/redis. Or with Debian's
// golang-github-gomodule-redigo-dev: GO111MODULE=off GOPATH=/usr/share/gocode go run ...)
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	mathrand "math/rand"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

const giveUp = 30 * time.Second // without an answer from any node

type disque struct {
	nodes []string
	conn  redis.Conn
}

func (d *disque) connect() (err error) {
	d.conn, err = redis.Dial("tcp", d.nodes[0],
		redis.DialPassword(os.Getenv("DISQUE_PASSWORD")),
		redis.DialConnectTimeout(5*time.Second),
		redis.DialReadTimeout(10*time.Second)) // longer than any command waits
	return err
}

var notNow = regexp.MustCompile("^(LEAVING|LOADING|NOREPL|NOUNIQ)")

// command sends a command, and tries the next node if the connection breaks or the node cannot run
// it now. So use it only for commands that may run twice.
func (d *disque) command(name string, args ...interface{}) (reply interface{}, err error) {
	for start := time.Now(); ; {
		if d.conn == nil {
			err = d.connect()
		}
		if d.conn != nil {
			reply, err = d.conn.Do(name, args...)
		}
		var refused redis.Error
		switch {
		case err == nil:
			return reply, nil
		case errors.As(err, &refused) && !notNow.MatchString(err.Error()), time.Since(start) > giveUp:
			return nil, fmt.Errorf("%s: %w", d.nodes[0], err)
		}
		if d.conn != nil {
			d.conn.Close()
			d.conn = nil
		}
		d.nodes = append(d.nodes[1:], d.nodes[0])
		time.Sleep(time.Duration(200+mathrand.Intn(200)) * time.Millisecond)
	}
}

func add(d *disque, queue string, bodies []string) error {
	for _, body := range bodies {
		key := make([]byte, 16) // sending this again returns the id of the same job
		if _, err := rand.Read(key); err != nil {
			return err
		}
		id, err := redis.String(d.command("ADDJOB", queue, body, 5000, "UNIQUE", key, "FOR", 300))
		if err != nil {
			return err
		}
		fmt.Println(id)
	}
	return nil
}

func work(d *disque, queue string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for len(stop) == 0 {
		// A short wait, to notice SIGTERM soon.
		jobs, err := redis.Values(d.command("GETJOB", "TIMEOUT", 1000, "WITHCOUNTERS", "FROM", queue))
		if err == redis.ErrNil {
			continue
		} else if err != nil {
			return err
		}
		var id, body string
		var nacks, again int
		fields, _ := redis.Values(jobs[0], nil)
		if _, err := redis.Scan(fields, nil, &id, &body, nil, &nacks, nil, &again); err != nil {
			return err
		}
		fmt.Printf("took %s (nacks %d, again %d)\n", body, nacks, again)
		done := make(chan error, 1)
		go func() { done <- handle(body, nacks) }()
		if failure := keep(d, id, done); failure != nil {
			_, err = d.command("NACK", id, "DELAY", min(1<<nacks, 60), "REASON", failure.Error())
		} else {
			_, err = d.command("ACKJOB", id)
			fmt.Println("done", body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep sends WORKING after every half of the job's retry time, so that nobody else gets it.
func keep(d *disque, id string, done <-chan error) error {
	for {
		retry, err := redis.Int(d.command("WORKING", id)) // seconds; 0 if delivered at most once
		if err != nil {
			log.Print("not ours any more: ", err)
		}
		if retry == 0 {
			return <-done
		}
		select {
		case failure := <-done:
			return failure
		case <-time.After(time.Duration(retry) * time.Second / 2):
		}
	}
}

// handle does the work: "sleep 3" takes three seconds, "fail" fails the first time.
func handle(body string, nacks int) error {
	if seconds := strings.TrimPrefix(body, "sleep "); seconds != body {
		duration, err := time.ParseDuration(seconds + "s")
		time.Sleep(duration)
		return err
	}
	if body == "fail" && nacks == 0 {
		return errors.New("not today")
	}
	return nil
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func main() {
	log.SetFlags(0)
	d := &disque{nodes: []string{"127.0.0.1:7711"}}
	if nodes := os.Getenv("DISQUE_NODES"); nodes != "" {
		d.nodes = strings.Fields(nodes)
	}
	role, queue := os.Args[1], os.Args[2]
	run := func() error { return work(d, queue) }
	if role == "add" {
		run = func() error { return add(d, queue, os.Args[3:]) }
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
