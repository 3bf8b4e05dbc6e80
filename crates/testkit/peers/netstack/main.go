// The peer of the tests that is gVisor's netstack: a host with one TCP connection, over which both
// sides send the same content and close.
//
// Each datagram on the descriptor that it inherits is a frame. Prints "right" when all content has
// come and gone.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic      = 1
	hardware = "\x02\x00\x00\x00\x09\x09"
	patience = 90 * time.Second
)

func main() {
	cable := flag.Int("fd", 0, "number of the descriptor that is the cable")
	address := flag.String("address", "", "own address with the length of its prefix, such as 10.77.0.12/24")
	listen := flag.Uint("listen", 0, "wait for a connection to this port")
	connect := flag.String("connect", "", "connect to this address and port")
	size := flag.Int("bytes", 1_000_000, "length of the content")
	flag.Parse()
	if err := run(*cable, *address, uint16(*listen), *connect, *size); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(cable int, address string, port uint16, to string, size int) error {
	own, err := netip.ParsePrefix(address)
	if err != nil {
		return err
	}
	host, err := newHost(cable, own)
	if err != nil {
		return err
	}
	var connection net.Conn
	if to == "" {
		connection, err = accept(host, port)
	} else {
		connection, err = dial(host, to)
	}
	if err != nil {
		return err
	}
	if err := exchange(connection, content(size)); err != nil {
		return err
	}
	fmt.Println("right")
	// The end of the connection is still to be acknowledged; who started us ends us.
	time.Sleep(patience)
	return nil
}

// newHost makes a stack with one interface.
func newHost(cable int, own netip.Prefix) (*stack.Stack, error) {
	host := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{cable},
		MTU:                1500,
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(hardware),
		PacketDispatchMode: fdbased.Readv,
	})
	if err != nil {
		return nil, err
	}
	if err := host.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("the interface: %v", err)
	}
	local := tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address:   tcpip.AddrFromSlice(own.Addr().AsSlice()),
			PrefixLen: own.Bits(),
		},
	}
	if err := host.AddProtocolAddress(nic, local, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("the address: %v", err)
	}
	host.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return host, nil
}

func accept(host *stack.Stack, port uint16) (net.Conn, error) {
	listener, err := gonet.ListenTCP(host, tcpip.FullAddress{NIC: nic, Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	fmt.Println("ready")
	return listener.Accept()
}

func dial(host *stack.Stack, to string) (net.Conn, error) {
	remote, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return gonet.DialContextTCP(ctx, host, tcpip.FullAddress{
		NIC:  nic,
		Addr: tcpip.AddrFromSlice(remote.Addr().AsSlice()),
		Port: remote.Port(),
	}, ipv4.ProtocolNumber)
}

// content is what both sides send; the tests compute the same.
func content(size int) []byte {
	bytes := make([]byte, size)
	for at := range bytes {
		bytes[at] = byte(at * 31 % 251)
	}
	return bytes
}

// exchange sends all while it receives all, and closes its own side first.
func exchange(connection net.Conn, content []byte) error {
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := connection.Write(content)
		if err == nil {
			err = connection.(*gonet.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(connection)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", len(got), err)
	}
	if err := <-sent; err != nil {
		return err
	}
	if !bytes.Equal(got, content) {
		return fmt.Errorf("wrong: %d bytes came", len(got))
	}
	return connection.Close()
}
