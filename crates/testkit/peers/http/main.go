// A Go program as people write them, for tests of programs that make their own system calls: net/http as server
// and client, with deadlines, half-close and refused connects.
//
//	http serve ADDRESS FOLDER    files of the folder; /echo gives back what it is sent
//	http get URL...              bodies to standard output, how each went to standard error
//	http deadline ADDRESS        a read that times out, then data, on one connection
//	http half ADDRESS            writes, ends its direction, reads to the end
//	http resolve SERVER NAME     what Go's own resolver hears from a name server, over UDP
//	http packets ADDRESS COUNT   gives back so many datagrams, with the sender's host in front
//	http addresses INTERFACE     the host's addresses, and those of one interface
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

const patience = 20 * time.Second

func main() {
	if len(os.Args) < 3 {
		fail("usage: http serve|get|deadline|half|resolve|packets|addresses ...")
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2], os.Args[3])
	case "get":
		get(os.Args[2:])
	case "deadline":
		deadline(os.Args[2])
	case "half":
		half(os.Args[2])
	case "resolve":
		resolve(os.Args[2], os.Args[3])
	case "packets":
		packets(os.Args[2], os.Args[3])
	case "addresses":
		addresses(os.Args[2])
	}
}

func addresses(name string) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		fail(err)
	}
	one, err := net.InterfaceByName(name)
	if err != nil {
		fail(err)
	}
	its, err := one.Addrs()
	if err != nil {
		fail(err)
	}
	fmt.Println(all)
	fmt.Println(its)
}

func fail(what any) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(1)
}

func serve(address, folder string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err)
	}
	http.Handle("/", http.FileServer(http.Dir(folder)))
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			panic(err)
		}
	})
	http.HandleFunc("/peer", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host)
	})
	fmt.Fprintln(os.Stderr, "listening on", listener.Addr())
	fail(http.Serve(listener, nil))
}

func get(urls []string) {
	client := http.Client{Timeout: patience}
	for _, url := range urls {
		answer, err := client.Get(url)
		if errors.Is(err, syscall.ECONNREFUSED) {
			fail("refused")
		}
		if err != nil {
			fail(err)
		}
		n, err := io.Copy(os.Stdout, answer.Body)
		answer.Body.Close()
		fmt.Fprintln(os.Stderr, answer.Status, n, err)
	}
}

func dial(address string) *net.TCPConn {
	connection, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		fail(err)
	}
	return connection.(*net.TCPConn)
}

func deadline(address string) {
	connection := dial(address)
	buffer := make([]byte, 16)
	connection.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := connection.Read(buffer)
	fmt.Println("timed out:", errors.Is(err, os.ErrDeadlineExceeded))
	connection.SetReadDeadline(time.Now().Add(patience))
	connection.Write([]byte("hello"))
	n, err := io.ReadFull(connection, buffer[:5])
	fmt.Println(string(buffer[:n]), err)
}

func half(address string) {
	connection := dial(address)
	fmt.Fprint(connection, "all of it")
	fmt.Println("closed:", connection.CloseWrite())
	text, err := io.ReadAll(connection)
	fmt.Println(string(text), err)
	_, err = connection.Write([]byte("more"))
	fmt.Println("broken pipe:", errors.Is(err, syscall.EPIPE))
}

func resolve(server, name string) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, server)
	}
	resolver := net.Resolver{PreferGo: true, Dial: dial}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hosts, err := resolver.LookupHost(ctx, name)
	if err != nil {
		fail(err)
	}
	fmt.Println(hosts)
}

func packets(address, count string) {
	left, err := strconv.Atoi(count)
	if err != nil {
		fail(err)
	}
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		fail(err)
	}
	fmt.Fprintln(os.Stderr, "listening on", socket.LocalAddr())
	buffer := make([]byte, 65536)
	for ; left > 0; left-- {
		n, peer, err := socket.ReadFrom(buffer)
		if err != nil {
			fail(err)
		}
		host, _, _ := net.SplitHostPort(peer.String())
		if _, err := socket.WriteTo([]byte(host+" said "+string(buffer[:n])), peer); err != nil {
			fail(err)
		}
	}
}
