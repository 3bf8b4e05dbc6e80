/*
 * What the parity programs share. Each program has a server half and a client half that talk over TCP
 * (over UDP where PARITY_UDP is defined; the server's socket is bound then) and print the results of their socket calls: values, errno names, event bits; never addresses, ports
 * or times, so that the output over the kernel and over Shunt can be compared line by line.
 *
 * A program whose addresses are of type address_t and of FAMILY is built a second time with PARITY_V6 defined,
 * and talks over IPv6; one that says sockaddr_in has IPv4 to itself, unless it asks for PARITY_V6.
 *
 *   PROGRAM both ADDRESS            both halves in one process, the server half in a thread
 *   PROGRAM server ADDRESS PORT     one half; start the server first
 *   PROGRAM client ADDRESS PORT     the other, on this host or another
 *   PROGRAM as ROLE                 for programs that define PARITY_ROLE and execute themselves
 */
#ifndef PARITY_H
#define PARITY_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef PARITY_V6
typedef struct sockaddr_in6 address_t;
#define FAMILY AF_INET6
#define PORT sin6_port
#define ADDRESS sin6_addr
#define KIND sin6_family
#define LOOPBACK "::1"
#define STRANGER "2001:db8:77::77"
#else
typedef struct sockaddr_in address_t;
#define FAMILY AF_INET
#define PORT sin_port
#define ADDRESS sin_addr
#define KIND sin_family
#define LOOPBACK "127.0.0.1"
#define STRANGER "192.0.2.77"
#endif

static void server(int listener);
static void client(address_t peer);
#ifdef PARITY_ROLE
static int role(const char *name);
#endif

static __thread FILE *out;
static address_t where;

/* Port 0 of an address in text. */
static address_t address_of(const char *text) {
    address_t address;
    memset(&address, 0, sizeof address);
    ((struct sockaddr *)&address)->sa_family = FAMILY;
    if (inet_pton(FAMILY, text, &address.ADDRESS) != 1)
        exit(2);
    return address;
}

static int same_host(address_t a, address_t b) { return !memcmp(&a.ADDRESS, &b.ADDRESS, sizeof a.ADDRESS); }

static int is_any(address_t a) {
    static const address_t zero;
    return same_host(a, zero);
}

static const char *error_name(int error) {
    const char *name = error ? strerrorname_np(error) : "0";
    return name ? name : "?";
}

/* One line of the half that runs. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(out ? out : stdout, format, arguments);
    va_end(arguments);
    fputc('\n', out ? out : stdout);
    errno = saved;
}

/* One line with a result: the value, or the name of the error. */
static long result(const char *what, long value) {
    if (value < 0)
        say("%s: %s", what, error_name(errno));
    else
        say("%s: %ld", what, value);
    return value;
}

/* A result whose value differs between runs: only whether it worked. */
static long worked(const char *what, long value) {
    say("%s: %s", what, value < 0 ? error_name(errno) : "ok");
    return value;
}

/* Event bits that poll, epoll and select(2) know, by name. */
static void events(const char *what, unsigned bits) {
    say("%s:%s%s%s%s%s%s", what, bits & POLLIN ? " IN" : "", bits & POLLOUT ? " OUT" : "",
        bits & POLLRDHUP ? " RDHUP" : "", bits & POLLERR ? " ERR" : "", bits & POLLHUP ? " HUP" : "",
        bits & POLLNVAL ? " NVAL" : "");
}

static void poll_now(const char *what, int fd, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&entry, 1, timeout_ms);
    events(what, (unsigned)entry.revents);
}

static int socket_error(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    return error;
}

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) < 0 && errno == EINTR) {
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static int connected(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0) {
        perror("connect");
        exit(1);
    }
    return fd;
}

static int accepted(int listener) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) {
        perror("accept");
        exit(1);
    }
    return fd;
}

/* A connection whose peer sends back what it hears, until the end. */
static void echoed(const char *what, address_t peer) {
    int fd = connected(peer);
    char text[16] = {0};
    result(what, send(fd, "hello", 5, 0));
    result("back", recv(fd, text, 5, MSG_WAITALL));
    say("text %s", text);
    shutdown(fd, SHUT_WR);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
}

/* Sends one byte to the other half, and waits for one: an order of events without a clock. */
static void step(int fd) {
    if (send(fd, ".", 1, MSG_NOSIGNAL) != 1)
        say("step: lost");
}

static void await(int fd) {
    char byte;
    if (recv(fd, &byte, 1, 0) != 1)
        say("await: lost");
}

#ifdef PARITY_UDP
static int listening(address_t address) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        perror("bind");
        exit(1);
    }
    return fd;
}
#else
static int listening(address_t address) {
    int fd = socket(FAMILY, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 16) < 0) {
        perror("listen");
        exit(1);
    }
    return fd;
}
#endif

static void *server_thread(void *argument) {
    FILE **mine = argument;
    out = *mine;
    int listener = *(int *)(mine + 1);
    server(listener);
    return NULL;
}

static int run_both(void) {
    struct {
        FILE *out;
        int listener;
    } half;
    char *text = NULL;
    size_t len = 0;
    half.out = open_memstream(&text, &len);
    half.listener = listening(where);
    socklen_t size = sizeof where;
    getsockname(half.listener, (struct sockaddr *)&where, &size);
    pthread_t thread;
    pthread_create(&thread, NULL, server_thread, &half);
    client(where);
    pthread_join(thread, NULL);
    fclose(half.out);
    printf("-- server\n%s", text);
    return 0;
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: %s both|server|client ADDRESS [PORT]\n", words[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef PARITY_ROLE
    if (!strcmp(words[1], "as"))
        return role(words[2]);
#endif
    where = address_of(words[2]);
    if (!strcmp(words[1], "both"))
        return run_both();
    where.PORT = htons((unsigned short)(count > 3 ? atoi(words[3]) : 7000));
    if (!strcmp(words[1], "server"))
        server(listening(where));
    else
        client(where);
    return 0;
}
#endif
