/* A signal handler interrupts calls that sleep: with SA_RESTART, without, and with a timeout. */
#include "parity.h"

static volatile sig_atomic_t seen;

static void on_signal(int signal) {
    (void)signal;
    seen++;
}

static void server(int listener) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    int fd = accepted(listener);
    for (int i = 0; i < 2; i++) {
        await(fd);
        pause_ms(300);
        send(fd, "late", 4, 0);
    }
    await(fd);
    close(fd);
}

/* Again and again: on a busy machine the first may come before the call sleeps. */
static void alarm_in(long ms, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {0, ms * 1000}, .it_interval = {0, ms * 1000}};
    seen = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void say_seen(void) {
    struct itimerval none = {0};
    setitimer(ITIMER_REAL, &none, NULL);
    say("seen: %d", seen > 0);
}

static void client(address_t peer) {
    int fd = connected(peer), epoll = epoll_create1(0);
    char text[8];
    alarm_in(100, 0);
    result("recv", recv(fd, text, sizeof text, 0));
    say_seen();
    step(fd);
    alarm_in(100, SA_RESTART);
    result("recv, restarted", recv(fd, text, sizeof text, 0));
    say_seen();
    struct timeval limit = {2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    alarm_in(100, SA_RESTART);
    result("recv with a timeout", recv(fd, text, sizeof text, 0));
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    alarm_in(100, SA_RESTART);
    result("poll", poll(&entry, 1, 2000));
    struct epoll_event wish = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish);
    alarm_in(100, SA_RESTART);
    result("epoll_wait", epoll_wait(epoll, &wish, 1, 2000));
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    alarm_in(100, SA_RESTART);
    result("select", select(fd + 1, &read, NULL, NULL, &limit));

    /* Blocked outside of the wait, let in by its mask. */
    sigset_t block, none;
    sigemptyset(&none);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &block, NULL);
    alarm_in(50, SA_RESTART);
    pause_ms(100);
    say("held back: %d", (int)seen);
    struct timespec time = {2, 0};
    result("ppoll", ppoll(&entry, 1, &time, &none));
    say_seen();
    alarm_in(50, SA_RESTART);
    pause_ms(100);
    result("epoll_pwait", epoll_pwait(epoll, &wish, 1, 2000, &none));
    say_seen();
    pthread_sigmask(SIG_UNBLOCK, &block, NULL);
    step(fd);
    alarm_in(100, 0);
    result("recv of all", recv(fd, text, 8, MSG_WAITALL | MSG_PEEK));
    say_seen();
    result("the bytes", recv(fd, text, 4, MSG_WAITALL));
    step(fd);
    result("end", recv(fd, text, 4, 0));
    close(fd);
    close(epoll);
}
