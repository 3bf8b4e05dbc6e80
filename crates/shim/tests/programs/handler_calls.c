/* Handlers of signals that send, receive, shut down and poll the very socket that is in a call, and others. */
#include "parity.h"

enum { PIECE = 30000, HANDLERS = 100 };

static int busy, other;
static volatile long handled, moved;
static volatile int outcome;
static address_t to;

static void on_sending(int number) {
    (void)number;
    if (send(busy, "h", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        moved++;
    handled++;
}

static void on_receiving(int number) {
    (void)number;
    char bytes[100];
    struct pollfd entry = {.fd = busy, .events = POLLIN};
    long got = poll(&entry, 1, 0) == 1 ? recv(busy, bytes, sizeof bytes, MSG_DONTWAIT) : 0;
    if (got > 0)
        moved += got;
    handled++;
}

static void on_shutting(int number) {
    (void)number;
    outcome = shutdown(busy, SHUT_RDWR);
}

static void on_talking(int number) {
    (void)number;
    char text[8];
    outcome = write(other, "other", 5) == 5 && read(other, text, 5) == 5 && send(busy, "same", 4, 0) == 4;
}

static void on_connecting(int number) {
    (void)number;
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    outcome = connect(fd, (struct sockaddr *)&to, sizeof to);
    close(fd);
}

/* Once soon, or again and again. */
static void ring(void (*handler)(int), long first_us, long next_us) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {0, first_us}, .it_interval = {0, next_us}};
    outcome = -1;
    handled = moved = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void be_silent(void) {
    struct itimerval never = {.it_value = {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
}

static long count_all(int fd) {
    char bytes[PIECE];
    long total = 0, got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        total += got;
    return total;
}

static void server(int listener) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    char bytes[PIECE] = {0};
    int fd = accepted(listener);
    long total = count_all(fd);
    send(fd, &total, sizeof total, 0);
    close(fd);
    fd = accepted(listener);
    for (total = 0; recv(fd, bytes, 1, MSG_DONTWAIT) < 0;)
        total += send(fd, bytes, sizeof bytes, 0);
    shutdown(fd, SHUT_WR);
    recv(fd, bytes, 1, 0);
    close(fd);
    fd = accepted(listener);
    step(fd);
    int second = accepted(listener);
    result("other hears", recv(second, bytes, 5, MSG_WAITALL));
    send(second, bytes, 5, 0);
    result("same hears", recv(fd, bytes, 4, MSG_WAITALL));
    send(fd, "reply", 5, 0);
    result("end", recv(fd, bytes, 1, 0));
    close(fd);
    close(second);
    /* Nothing is read of this one before its end. */
    fd = accepted(listener);
    step(fd);
    await(second = accepted(listener));
    close(fd);
    close(second);
}

static void sends(address_t peer) {
    static const char bytes[PIECE];
    long total = 0;
    busy = connected(peer);
    ring(on_sending, 200, 200);
    while (handled < HANDLERS)
        total += send(busy, bytes, sizeof bytes, 0);
    be_silent();
    shutdown(busy, SHUT_WR);
    long heard = 0;
    recv(busy, &heard, sizeof heard, MSG_WAITALL);
    say("all that was sent arrived: %d", heard == total + moved);
    close(busy);
}

static void receives(address_t peer) {
    char bytes[PIECE];
    long got = 0;
    busy = connected(peer);
    ring(on_receiving, 200, 200);
    while (handled < HANDLERS && (got = recv(busy, bytes, sizeof bytes, 0)) > 0) {
    }
    be_silent();
    say("received to the last: %d", got > 0);
    step(busy);
    say("then the end: %d", count_all(busy) >= 0);
    close(busy);
}

static void client(address_t peer) {
    char text[8];
    sends(peer);
    receives(peer);

    /* In turn: an engine of several cores accepts what came together core by core. */
    busy = connected(peer);
    await(busy);
    other = connected(peer);
    ring(on_talking, 50000, 0);
    result("recv", recv(busy, text, 5, MSG_WAITALL));
    say("talked meanwhile: %d", outcome);
    ring(on_shutting, 50000, 0);
    result("recv until shutdown", recv(busy, text, 1, 0));
    say("shut down: %d", outcome);
    close(busy);
    close(other);

    static const char bytes[1 << 20];
    long sent;
    busy = connected(peer);
    await(busy);
    other = connected(peer);
    ring(on_shutting, 300000, 0);
    while ((sent = send(busy, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0 && outcome != 0) {
    }
    say("shut down: %d", outcome);
    result("send", send(busy, bytes, 1, MSG_NOSIGNAL));
    step(other);
    close(busy);
    close(other);

    to = where;
    to.PORT = 0;
    int listener = listening(to);
    socklen_t len = sizeof to;
    getsockname(listener, (struct sockaddr *)&to, &len);
    for (int i = 0; i < 3; i++) {
        ring(on_connecting, 50000, 0);
        worked("accept", busy = accept(listener, NULL, NULL));
        say("connected meanwhile: %d", outcome);
        close(busy);
    }
    close(listener);
}
