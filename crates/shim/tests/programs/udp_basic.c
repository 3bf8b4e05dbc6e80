/* UDP: sendto, recvfrom, connected sockets, empty and cut datagrams, peeking, names, errno. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"

static int same(address_t a, address_t b) {
    return same_host(a, b) && a.PORT == b.PORT;
}

static void server(int fd) {
    address_t peer = {0}, again = {0};
    char text[64] = {0};
    socklen_t len = sizeof peer;
    result("recvfrom", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&peer, &len));
    say("text %s, name of %d bytes", text, (int)len);
    result("answer", sendto(fd, "hello back", 10, 0, (struct sockaddr *)&peer, sizeof peer));
    len = sizeof again;
    result("empty", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&again, &len));
    say("the same sender: %d", same(peer, again));
    char cut[4] = {0};
    result("cut", recv(fd, cut, sizeof cut, 0));
    say("cut to %.4s", cut);
    result("cut, full length asked for", recv(fd, cut, sizeof cut, MSG_TRUNC));
    result("peek", recv(fd, text, sizeof text, MSG_PEEK));
    result("peek with full length", recv(fd, cut, 2, MSG_PEEK | MSG_TRUNC));
    int waiting = -1;
    result("FIONREAD", ioctl(fd, FIONREAD, &waiting));
    say("first datagram has %d", waiting);
    struct iovec parts[2] = {{cut, 2}, {text, 3}};
    struct msghdr message = {.msg_name = &again, .msg_namelen = sizeof again, .msg_iov = parts, .msg_iovlen = 2};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("flags %s, name of %d, control %d, parts %.2s %.3s", message.msg_flags & MSG_TRUNC ? "TRUNC" : "none",
        (int)message.msg_namelen, (int)message.msg_controllen, cut, text);
    result("nothing more", recv(fd, text, sizeof text, MSG_DONTWAIT));
    result("read of nothing", read(fd, text, 0));
    waiting = -1;
    result("FIONREAD", ioctl(fd, FIONREAD, &waiting));
    say("waiting %d", waiting);
    len = sizeof again;
    result("no peer", getpeername(fd, (struct sockaddr *)&again, &len));
    result("send without a peer", send(fd, "x", 1, 0));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    len = sizeof again;
    result("peer", getpeername(fd, (struct sockaddr *)&again, &len));
    say("is the client: %d", same(peer, again));
    result("send", send(fd, "to you", 6, 0));
    result("write", write(fd, "only", 4));
    result("done", recv(fd, text, sizeof text, 0));
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    address_t name = {0};
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    say("fresh port %s", name.PORT ? "set" : "0");
    address_t nowhere = peer;
    nowhere.PORT = 0;
    result("to port 0", sendto(fd, "x", 1, 0, (struct sockaddr *)&nowhere, sizeof nowhere));
    result("a short name", sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, 4));
    result("sendto", sendto(fd, "hello", 5, 0, (struct sockaddr *)&peer, sizeof peer));
    len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    say("implicitly bound: address %s, port %s", is_any(name) ? "any" : "set", name.PORT ? "set" : "0");
    char text[64] = {0};
    address_t from = {0};
    len = sizeof from;
    result("answer", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &len));
    say("text %s from the server: %d", text, same(from, peer));
    result("empty", sendto(fd, NULL, 0, 0, (struct sockaddr *)&peer, sizeof peer));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    say("connected: address %s, port %s", is_any(name) ? "any" : "set", name.PORT ? "set" : "0");
    result("first", send(fd, "abcdef", 6, 0));
    struct iovec parts[2] = {{"ghi", 3}, {"jkl", 3}};
    result("second", writev(fd, parts, 2));
    result("third", sendto(fd, "mnopqr", 6, 0, (struct sockaddr *)&peer, sizeof peer));
    static char large[70000];
    result("too long", send(fd, large, FAMILY == AF_INET ? 65508 : 65528, 0));
    result("much too long", send(fd, large, sizeof large, 0));
    result("connected answer", recv(fd, text, sizeof text, 0));
    result("connected read", read(fd, text, sizeof text));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
#ifndef PARITY_V6 /* Linux sends it there */
    result("out of band", send(fd, "x", 1, MSG_OOB));
#endif
    result("done", send(fd, "done", 4, 0));
    result("disconnect", connect(fd, &none, sizeof none));
    len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    say("disconnected: address %s, port %s", is_any(name) ? "any" : "set", name.PORT ? "set" : "0");
    len = sizeof name;
    result("no peer", getpeername(fd, (struct sockaddr *)&name, &len));
    result("no destination", send(fd, "x", 1, 0));
    result("listen", listen(fd, 1));
    result("accept", accept(fd, NULL, NULL));
    result("nothing there", recv(fd, text, sizeof text, MSG_DONTWAIT));
    close(fd);

    fd = socket(FAMILY, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP);
    address_t any = address_of(FAMILY == AF_INET ? "0.0.0.0" : "::");
    result("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    result("bind again", bind(fd, (struct sockaddr *)&any, sizeof any));
    len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    say("bound: address %s, port %s", is_any(name) ? "any" : "set", name.PORT ? "set" : "0");
    int second = socket(FAMILY, SOCK_DGRAM, 0);
    result("bind to the same", bind(second, (struct sockaddr *)&name, sizeof name));
    result("nonblocking", recv(fd, text, sizeof text, 0));
    close(second);
    close(fd);
}
