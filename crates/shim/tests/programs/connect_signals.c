/* Connects that do not wait, while signals come whose handler has calls go on: each is in progress, once. */
#include "parity.h"

enum { CONNECTS = 300 };

static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void server(int listener) {
    int fd, done = 0;
    /* Every thread of the process but the client's. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (; done < CONNECTS; done++) {
        fd = accepted(listener);
        close(fd);
    }
    say("accepted %d", done);
}

static void client(address_t peer) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval time = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &time, NULL);
    int in_progress = 0, connects = 0;
    for (int i = 0; i < CONNECTS; i++) {
        int fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0 && errno == EINPROGRESS)
            in_progress++;
        else
            say("connect: %s", error_name(errno));
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        while (poll(&entry, 1, 5000) < 0 && errno == EINTR) {
        }
        connects += socket_error(fd) == 0 && entry.revents & POLLOUT;
        close(fd);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    say("in progress %d, connected %d", in_progress, connects);
}
