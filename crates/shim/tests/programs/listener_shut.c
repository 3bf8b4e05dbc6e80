/* shutdown(2) of a listener: it stops, what waits is reset, whoever waits in accept is told, and it can listen again. */
#include "parity.h"
#include "asleep.h"

static void server(int fd) { (void)fd; }

/* A listener on a port that the program names itself. */
static int named(address_t at) {
    int fd = socket(FAMILY, SOCK_STREAM, 0), on = 1;
    socklen_t len = sizeof at;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        exit(1);
    close(fd);
    fd = socket(FAMILY, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 8) < 0)
        exit(1);
    return fd;
}

static void *accepting(void *argument) {
    about_to_sleep();
    int fd = accept(*(int *)argument, NULL, NULL);
    return (void *)(long)(fd < 0 ? errno : 0);
}

static void refused(const char *what, address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    result(what, connect(fd, (struct sockaddr *)&peer, sizeof peer));
    close(fd);
}

static void events_of(const char *what, int epoll) {
    struct epoll_event event = {0};
    long count = epoll_wait(epoll, &event, 1, 5000);
    events(what, count == 1 ? event.events : 0);
}

static void shut(address_t at, address_t peer, int how) {
    socklen_t len = sizeof at;
    int listener = named(at), epoll = epoll_create1(0);
    getsockname(listener, (struct sockaddr *)&at, &len);
    peer.PORT = at.PORT;
    struct epoll_event wish = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &wish);
    result("SHUT_WR", shutdown(listener, SHUT_WR));
    int fd = connected(peer), taken = accepted(listener);
    close(taken);
    close(fd);
    pthread_t thread;
    void *error = NULL;
    pthread_create(&thread, NULL, accepting, &listener);
    await_sleep();
    result("shutdown", shutdown(listener, how));
    pthread_join(thread, &error);
    say("who waited in accept: %s", error_name((int)(long)error));
    events_of("epoll", epoll);
    poll_now("poll", listener, 0);
    result("accept", accept(listener, NULL, NULL));
    refused("connect", peer);
    say("non-blocking: %d", !!(fcntl(listener, F_GETFL) & O_NONBLOCK));
    result("listen", listen(listener, 8));
    fd = connected(peer);
    result("a byte", send(fd, "x", 1, 0));
    taken = accepted(listener);
    await(taken);
    close(taken);
    close(fd);
    /* One waits in the queue, and another process has the listener too. */
    fd = connected(peer);
    int tube[2];
    char byte = 0;
    if (pipe(tube) < 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        if (read(tube[0], &byte, 1) != 1)
            _exit(1);
        _exit(accept(listener, NULL, NULL) < 0 && errno == EINVAL ? 0 : 2);
    }
    result("with one in the queue", shutdown(listener, how));
    result("who was in the queue", recv(fd, &byte, 1, 0));
    refused("connect", peer);
    int status = -1;
    if (write(tube[1], "x", 1) != 1)
        exit(1);
    waitpid(child, &status, 0);
    say("the other process: %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    result("again", shutdown(listener, how));
    close(fd);
    close(listener);
    close(epoll);
}

static void *selecting(void *argument) {
    int fd = *(int *)argument;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    about_to_sleep();
    return (void *)(long)select(fd + 1, &set, NULL, NULL, NULL);
}

/* Who waits for the listener in select hears of the end, whenever it looks. */
static void shut_while_selected(address_t at) {
    long told = 0;
    for (int round = 0; round < 10; round++) {
        int listener = named(at);
        pthread_t thread;
        void *count = NULL;
        pthread_create(&thread, NULL, selecting, &listener);
        await_sleep();
        shutdown(listener, SHUT_RDWR);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 10;
        if (pthread_timedjoin_np(thread, &count, &until))
            break;
        told += (long)count;
        close(listener);
    }
    say("who waited in select was told: %ld", told);
}

static void client(address_t peer) {
    address_t any, one = peer;
    memset(&any, 0, sizeof any);
    any.KIND = FAMILY;
    one.PORT = 0;
    shut(one, peer, SHUT_RD);
    shut(one, peer, SHUT_RDWR);
    shut(any, peer, SHUT_RD);
    shut_while_selected(any);
}
