/* accept at the limit of open files: EMFILE, and the connections go on waiting until something is closed. */
#include "parity.h"
#include <sys/resource.h>

#define CLIENTS 14

/* Few more descriptors than there are now. */
static void limit_to(int more) {
    struct rlimit limit;
    int next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)(next + more);
    worked("a limit", setrlimit(RLIMIT_NOFILE, &limit));
}

/* Greets all of them, and closes what the clients have closed: nothing is left in TIME-WAIT here. */
static int serve(int *open, int count) {
    char byte;
    for (int i = 0; i < count; i++)
        if (send(open[i], "hello", 5, MSG_NOSIGNAL) != 5)
            say("send: %s", error_name(errno));
    for (int i = 0; i < count; i++) {
        fcntl(open[i], F_SETFL, 0);
        if (recv(open[i], &byte, 1, 0) != 0)
            say("recv: %s", error_name(errno));
        close(open[i]);
    }
    return count;
}

/* Whether a connection waits; what is open is served before it waits for one. */
static int waits(int listener, int control, int *open, int *count, int *served) {
    struct pollfd entries[] = {{.fd = listener, .events = POLLIN}, {.fd = control, .events = POLLIN}};
    if (poll(entries, 2, 0) == 0) {
        *served += serve(open, *count);
        *count = 0;
        poll(entries, 2, -1);
    }
    return (entries[0].revents & POLLIN) != 0;
}

static void server(int listener) {
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    int control = accepted(listener), open[CLIENTS], count = 0, served = 0, rounds = 0;
    step(control);
    /* All of them are made, and wait. */
    await(control);
    nonblocking(listener);
    limit_to(6);
    while (waits(listener, control, open, &count, &served)) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0) {
            open[count++] = fd;
            continue;
        }
        if (errno != EMFILE) {
            say("accept: %s", error_name(errno));
            break;
        }
        if (!rounds) {
            worked("accept", accept(listener, NULL, NULL));
            worked("with flags", accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
            fcntl(listener, F_SETFL, 0);
            worked("that may wait", accept(listener, NULL, NULL));
            nonblocking(listener);
            poll_now("the listener", listener, 0);
            result("its error", socket_error(listener));
            say("some were accepted: %d", count > 0);
        }
        rounds++;
        served += serve(open, count);
        count = 0;
    }
    say("served: %d", served + serve(open, count));
    setrlimit(RLIMIT_NOFILE, &before);
    poll_now("the listener at last", listener, 0);
    await(control);
    close(control);
}

static void client(address_t peer) {
    int control = connected(peer), fds[CLIENTS], greeted = 0, reset = 0, ended = 0, others = 0;
    await(control);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = connected(peer);
    step(control);
    for (int left = CLIENTS; left; left--) {
        struct pollfd entries[CLIENTS];
        char text[8];
        int i = 0;
        for (int at = 0; at < CLIENTS; at++)
            entries[at] = (struct pollfd){.fd = fds[at], .events = POLLIN};
        poll(entries, CLIENTS, -1);
        while (!entries[i].revents)
            i++;
        ssize_t got = recv(fds[i], text, 5, MSG_WAITALL);
        if (got == 5)
            greeted++;
        else if (got < 0 && errno == ECONNRESET)
            reset++;
        else if (got == 0)
            ended++;
        else
            others++;
        close(fds[i]);
        fds[i] = -1;
    }
    /* Nobody is left to be served. */
    step(control);
    say("greeted %d, reset %d, ended %d, others %d", greeted, reset, ended, others);
    step(control);
    close(control);
}
