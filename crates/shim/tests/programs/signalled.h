/* Hearing of events by signals; after parity.h. */
#ifndef SIGNALLED_H
#define SIGNALLED_H
#include <linux/sockios.h>
#include <sys/syscall.h>

enum { PATIENCE_S = 30 };

static int chosen(void) { return SIGRTMIN + 3; }

static void block(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigaddset(&set, SIGURG);
    sigaddset(&set, chosen());
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Waits for a signal; 0: it does not come. */
static int signalled(int number, int patience_s, siginfo_t *info) {
    sigset_t set;
    struct timespec time = {patience_s, 0};
    sigemptyset(&set);
    sigaddset(&set, number);
    int got;
    while ((got = sigtimedwait(&set, info, &time)) < 0 && errno == EINTR) {
    }
    return got == number;
}

static void comes(const char *what, int number) {
    siginfo_t info;
    say("%s: %s", what, signalled(number, PATIENCE_S, &info) ? "signalled" : "nothing");
}

/* Nothing is on its way: what it is about was seen before. */
static void comes_not(const char *what, int number) {
    siginfo_t info;
    say("%s: %s", what, signalled(number, 0, &info) ? "signalled" : "nothing");
}

/* The chosen signal, of this kind and descriptor; others before it are of what had been before. */
static void tells(const char *what, int code, long band, int fd) {
    siginfo_t info;
    while (signalled(chosen(), PATIENCE_S, &info))
        if (info.si_code == code) {
            say("%s: band %d, descriptor %d", what, info.si_band == band, info.si_fd == fd);
            return;
        }
    say("%s: nothing", what);
}

static void flush(void) {
    siginfo_t info;
    while (signalled(SIGIO, 0, &info) || signalled(chosen(), 0, &info)) {
    }
}

static void async(int fd, int on) {
    int flags = fcntl(fd, F_GETFL);
    result("O_ASYNC", fcntl(fd, F_SETFL, on ? flags | O_ASYNC : flags & ~O_ASYNC));
    say("is on: %d", (fcntl(fd, F_GETFL) & O_ASYNC) != 0);
}

/* This thread hears. */
static void own_by_thread(int fd) {
    struct f_owner_ex owner = {F_OWNER_TID, (pid_t)syscall(SYS_gettid)}, told = {0};
    result("F_SETOWN_EX", fcntl(fd, F_SETOWN_EX, &owner));
    result("F_GETOWN_EX", fcntl(fd, F_GETOWN_EX, &told));
    say("told: %d", told.type == owner.type && told.pid == owner.pid);
}

/* Waits without the signal. */
static void readable(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, PATIENCE_S * 1000);
}

static void take(const char *what, int fd) {
    char bytes[16];
    result(what, recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
}
#endif
