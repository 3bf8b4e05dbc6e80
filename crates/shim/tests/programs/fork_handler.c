/* The handler of a signal forks while its thread waits for two sockets; parent and child go on with both. */
#include "parity.h"

static pid_t child;

static void on_alarm(int number) {
    (void)number;
    child = fork();
}

/* Waits with the signal let in only there, so that it never comes before the wait. */
static int wait_for_both(int listener, int fd, const sigset_t *mask) {
    struct pollfd both[] = {{.fd = listener, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int count = ppoll(both, 2, NULL, mask);
    return count < 0 ? -errno : both[1].revents;
}

static void server(int listener) {
    int fd = accepted(listener);
    sigset_t alarm_only, none;
    sigemptyset(&none);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    int waited = wait_for_both(listener, fd, &none);
    if (child == 0) {
        char byte = 0;
        if (waited != -EINTR || send(fd, "child", 5, 0) != 5)
            _exit(1);
        if (wait_for_both(listener, fd, &none) != POLLIN || recv(fd, &byte, 1, 0) != 1)
            _exit(2);
        close(fd);
        /* Numbers that the library closed are free for the program, and nobody closes them again. */
        int last = dup(1);
        for (int i = 0; i < 100; i++)
            if (dup(1) < 0)
                _exit(3);
        _exit(fcntl(last, F_GETFD) < 0 ? 4 : byte);
    }
    say("waited: %s", error_name(-waited));
    int status = 0;
    waitpid(child, &status, 0);
    say("child says %c", WEXITSTATUS(status));
    result("parent sends", send(fd, "parent", 6, 0));
    close(fd);
}

static void client(address_t peer) {
    /* The server's thread alone hears of it. */
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    int fd = connected(peer);
    char text[16] = {0};
    result("from the child", recv(fd, text, 5, MSG_WAITALL));
    say("text %s", text);
    result("send", send(fd, "x", 1, 0));
    result("from the parent", recv(fd, text, 6, MSG_WAITALL));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
}
