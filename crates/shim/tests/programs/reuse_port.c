/* SO_REUSEPORT of listeners: who may listen on one end, who gets which connection, and what becomes of a group when one leaves. */
#include "parity.h"

enum { LISTENERS = 4, CONNECTIONS = 64, SOURCES = 8, TIMES = 4 };

static void server(int fd) { (void)fd; }

/* A listener by these options before and after bind; -1 where it is refused. */
static int listens(const char *what, address_t *at, const int *before, int after) {
    int fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    socklen_t len = sizeof *at;
    for (; *before; before++)
        setsockopt(fd, SOL_SOCKET, *before, &on, sizeof on);
    int done = bind(fd, (struct sockaddr *)at, sizeof *at);
    if (done == 0 && after)
        setsockopt(fd, SOL_SOCKET, after, &on, sizeof on);
    if (done == 0)
        done = listen(fd, CONNECTIONS);
    if (what)
        result(what, done);
    if (done == 0 && at->PORT == 0)
        getsockname(fd, (struct sockaddr *)at, &len);
    if (done == 0)
        return fd;
    close(fd);
    return -1;
}

static const int none[] = {0}, addr[] = {SO_REUSEADDR, 0}, port[] = {SO_REUSEPORT, 0}, both[] = {SO_REUSEADDR, SO_REUSEPORT, 0};

static int one_of_group(const char *what, address_t *at) { return listens(what, at, port, 0); }

static void forget(int fd) {
    if (fd >= 0)
        close(fd);
}

static void by_options(address_t peer) {
    const struct {
        const char *what;
        const int *first, *second;
        int after;
    } rows[] = {
        {"none, none", none, none, 0},   {"port, none", port, none, 0},           {"none, port", none, port, 0},
        {"port, addr", port, addr, 0},   {"addr, port", addr, port, 0},           {"addr, addr", addr, addr, 0},
        {"port, port", port, port, 0},   {"both, port", both, port, 0},           {"both, both", both, both, 0},
        {"addr, both", addr, both, 0},   {"port, port after bind", port, none, SO_REUSEPORT}, {"both, port after bind", both, addr, SO_REUSEPORT},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        peer.PORT = 0;
        int first = listens(NULL, &peer, rows[n].first, 0);
        forget(listens(rows[n].what, &peer, rows[n].second, rows[n].after));
        forget(first);
    }
    peer.PORT = 0;
    int first = one_of_group("first", &peer);
    if (seteuid(65534) < 0)
        say("not by root");
    forget(one_of_group("another user", &peer));
    if (seteuid(0) < 0)
        say("not by root");
    forget(one_of_group("the same user", &peer));
    forget(first);
}

/* Takes all connections of a listener; how many, and closes them. */
static int drain(int listener) {
    int count = 0, fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        close(fd);
        count++;
    }
    return count;
}

/* The listener that has a connection, taken. */
static int which(const int *fds, int count) {
    struct pollfd entries[LISTENERS];
    for (int n = 0; n < count; n++)
        entries[n] = (struct pollfd){.fd = fds[n], .events = POLLIN};
    poll(entries, (nfds_t)count, 5000);
    for (int n = 0; n < count; n++)
        if (entries[n].revents) {
            drain(fds[n]);
            return n;
        }
    return -1;
}

static void by_hash(address_t peer) {
    int fds[LISTENERS], used[LISTENERS] = {0}, busy = 0, all = 0, stable = 1;
    address_t source = peer;
    peer.PORT = 0;
    for (int n = 0; n < LISTENERS; n++)
        fds[n] = one_of_group("one of a group", &peer);
    for (int n = 0; n < CONNECTIONS; n++) {
        int fd = connected(peer), place = which(fds, LISTENERS);
        all += place >= 0;
        used[place >= 0 ? place : 0]++;
        close(fd);
    }
    for (int n = 0; n < LISTENERS; n++)
        busy += used[n] > CONNECTIONS / LISTENERS / 4;
    say("accepted %d of %d, listeners with their share %d of %d", all, CONNECTIONS, busy, LISTENERS);
    for (int n = 0; n < SOURCES; n++) {
        int place = -1;
        source.PORT = 0;
        for (int time = 0; time < TIMES; time++) {
            struct linger reset = {.l_onoff = 1};
            socklen_t len = sizeof source;
            int fd = socket(FAMILY, SOCK_STREAM, 0), on = 1;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (bind(fd, (struct sockaddr *)&source, sizeof source) < 0 || connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0)
                say("connect: %s", error_name(errno));
            getsockname(fd, (struct sockaddr *)&source, &len);
            struct pollfd entries[LISTENERS];
            for (int k = 0; k < LISTENERS; k++)
                entries[k] = (struct pollfd){.fd = fds[k], .events = POLLIN};
            poll(entries, LISTENERS, 5000);
            for (int k = 0; k < LISTENERS; k++) {
                int taken = entries[k].revents ? accept(fds[k], NULL, NULL) : -1;
                if (taken < 0)
                    continue;
                stable &= place < 0 || place == k;
                place = k;
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
                close(fd);
                char byte;
                recv(taken, &byte, 1, 0);
                close(taken);
            }
        }
    }
    say("the same ends find the same listener: %d", stable);
    for (int n = 0; n < LISTENERS; n++)
        close(fds[n]);
}

static void one_leaves(address_t peer) {
    int fds[CONNECTIONS], reset = 0, ended = 0;
    peer.PORT = 0;
    int first = one_of_group("first", &peer), second = one_of_group("second", &peer);
    for (int n = 0; n < CONNECTIONS; n++)
        fds[n] = connected(peer);
    close(first);
    int taken = drain(second);
    for (int n = 0; n < CONNECTIONS; n++) {
        char byte;
        long got = recv(fds[n], &byte, 1, 0);
        reset += got < 0 && errno == ECONNRESET;
        ended += got == 0;
        close(fds[n]);
    }
    say("some accepted %d, some reset %d, all %d, as accepted %d", taken > 0, reset > 0, reset + ended == CONNECTIONS, ended == taken);
    for (int n = 0; n < CONNECTIONS; n++)
        close(connected(peer));
    while (taken < CONNECTIONS + ended) {
        struct pollfd entry = {.fd = second, .events = POLLIN};
        if (poll(&entry, 1, 5000) <= 0)
            break;
        taken += drain(second);
    }
    say("then all to the other: %d", taken - ended);
    close(second);
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    result("then none", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    close(fd);
}

static void by_address(address_t peer) {
    address_t any;
    memset(&any, 0, sizeof any);
    any.KIND = FAMILY;
    /* A port that is free on all addresses of both families: other programs run beside this one. */
    int probe = socket(FAMILY, SOCK_STREAM, 0);
    socklen_t len = sizeof any;
    bind(probe, (struct sockaddr *)&any, sizeof any);
    getsockname(probe, (struct sockaddr *)&any, &len);
    close(probe);
    peer.PORT = any.PORT;
    int first = one_of_group("one address", &peer);
    int all = one_of_group("all", &any), again = one_of_group("all again", &any), taken = 0;
    for (int n = 0; n < CONNECTIONS; n++) {
        close(connected(peer));
        int two[] = {first, all, again};
        taken += which(two, 3) == 0;
    }
    say("to the one address: %d of %d", taken, CONNECTIONS);
    close(first);
    close(all);
    close(again);
}

/* A server is started again: the new process listens before the old one ends. */
static void restarted(address_t peer) {
    int up[2], down[2], refused = 0;
    char byte = 0;
    peer.PORT = 0;
    int old = one_of_group("old", &peer);
    if (pipe(up) < 0 || pipe(down) < 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        close(old);
        int own = listens(NULL, &peer, port, 0), count = 0;
        if (write(up[1], own < 0 ? "n" : "y", 1) != 1 || read(down[0], &byte, 1) != 1)
            _exit(1);
        while (count < CONNECTIONS) {
            struct pollfd entry = {.fd = own, .events = POLLIN};
            if (poll(&entry, 1, 5000) <= 0)
                break;
            count += drain(own);
        }
        _exit(count == CONNECTIONS ? 0 : 2);
    }
    if (read(up[0], &byte, 1) != 1)
        exit(1);
    say("the new process listens: %c", byte);
    close(old);
    for (int n = 0; n < CONNECTIONS; n++) {
        int fd = socket(FAMILY, SOCK_STREAM, 0);
        refused += connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0;
        close(fd);
    }
    say("refused: %d of %d", refused, CONNECTIONS);
    if (write(down[1], "x", 1) != 1)
        exit(1);
    int status = -1;
    waitpid(child, &status, 0);
    say("all came to the new process: %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void client(address_t peer) {
    by_options(peer);
    by_hash(peer);
    one_leaves(peer);
    by_address(peer);
    restarted(peer);
}
