/* Signal-driven input and output: who is signalled of what, by which signal, and with whose rights. */
#include "parity.h"
#include "signalled.h"

/* Of the server, over a connection of its own. */
enum { DATA = 'd', URGENT = 'u', READ_ALL = 'r', FINISH = 'f', RESET = 'x' };

static void order(int control, char what) {
    if (send(control, &what, 1, MSG_NOSIGNAL) != 1)
        say("order: lost");
}

/* Reads what the client has written, of which it tells how much. */
static void read_all(int fd, int control) {
    static char bytes[65536];
    long left = 0;
    recv(control, &left, sizeof left, MSG_WAITALL);
    while (left > 0) {
        long got = recv(fd, bytes, sizeof bytes, 0);
        if (got <= 0)
            break;
        left -= got;
    }
    say("left: %ld", left);
}

static void reset(int fd) {
    struct linger linger = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

static void server(int listener) {
    block();
    own_by_thread(listener);
    async(listener, 1);
    int control = accepted(listener);
    flush();
    step(control);
    comes("a connection", SIGIO);
    int fd = accepted(listener);
    char what;
    while (recv(control, &what, 1, 0) == 1) {
        if (what == DATA)
            send(fd, "data", 4, 0);
        else if (what == URGENT)
            send(fd, "!", 1, MSG_OOB);
        else if (what == READ_ALL)
            read_all(fd, control);
        else if (what == FINISH)
            shutdown(fd, SHUT_WR);
        else if (what == RESET)
            reset(fd);
    }
    close(control);
}

/* A process of root's that tells, whenever it is asked, whether SIGIO came to it. */
static pid_t bystander(int *question, int *answer) {
    int questions[2], answers[2];
    if (pipe(questions) < 0 || pipe(answers) < 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        char patience;
        close(questions[1]);
        while (read(questions[0], &patience, 1) == 1) {
            siginfo_t info;
            char came = signalled(SIGIO, patience, &info) ? 'y' : 'n';
            if (write(answers[1], &came, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(questions[0]);
    close(answers[1]);
    *question = questions[1];
    *answer = answers[0];
    return child;
}

static void ask(const char *what, int question, int answer, char patience) {
    char came = '?';
    if (write(question, &patience, 1) != 1 || read(answer, &came, 1) != 1)
        say("%s: no answer", what);
    say("%s: %c", what, came);
}

/* This thread alone: what it has set may signal whom it may signal. */
static void become(const char *what, uid_t user) {
    result(what, syscall(SYS_setresuid, user, user, 0));
}

/* So many bytes behind an urgent one, of which nobody has to tell apart whether it is to be read. */
static long behind_mark(int fd, long wanted) {
    char bytes[16];
    long got = 0;
    while (got < wanted) {
        readable(fd);
        long now = recv(fd, bytes, (size_t)(wanted - got), MSG_DONTWAIT);
        if (now == 0 || (now < 0 && errno != EAGAIN))
            break;
        got += now > 0 ? now : 0;
    }
    return got;
}

static void plain(int fd, int control) {
    result("owner", fcntl(fd, F_GETOWN));
    result("signal", fcntl(fd, F_GETSIG));
    result("F_SETOWN", fcntl(fd, F_SETOWN, getpid()));
    say("owner %d", fcntl(fd, F_GETOWN) == getpid());
    order(control, DATA);
    readable(fd);
    comes_not("without O_ASYNC", SIGIO);
    take("data", fd);
    async(fd, 1);
    order(control, DATA);
    comes("data", SIGIO);
    readable(fd);
    take("data", fd);
    order(control, DATA);
    comes("more", SIGIO);
    readable(fd);
    take("data", fd);
    order(control, URGENT);
    comes("urgent data", SIGURG);
    async(fd, 0);
    flush();
    order(control, DATA);
    result("data", behind_mark(fd, 4));
    comes_not("switched off", SIGIO);
    flush();
}

static void by_ioctl(int fd) {
    int own = getpid(), group = -getpgrp(), told = 0, on = 1;
    result("FIOSETOWN", ioctl(fd, FIOSETOWN, &own));
    result("FIOGETOWN", ioctl(fd, FIOGETOWN, &told));
    say("told: %d", told == own);
    result("SIOCSPGRP", ioctl(fd, SIOCSPGRP, &group));
    result("SIOCGPGRP", ioctl(fd, SIOCGPGRP, &told));
    say("told: %d", told == group);
    result("FIOASYNC", ioctl(fd, FIOASYNC, &on));
    say("is on: %d", (fcntl(fd, F_GETFL) & O_ASYNC) != 0);
}

static void with_information(int fd, int control) {
    own_by_thread(fd);
    result("F_SETSIG", fcntl(fd, F_SETSIG, chosen()));
    say("signal %d", fcntl(fd, F_GETSIG) == chosen());
    result("a number that is none", fcntl(fd, F_SETSIG, 999));
    async(fd, 0);
    flush();
    async(fd, 1);
    order(control, DATA);
    tells("input", POLL_IN, POLLIN | POLLRDNORM, fd);
    readable(fd);
    take("data", fd);
    comes_not("another signal", SIGIO);
    flush();

    static char bytes[65536];
    long total = 0, sent;
    while ((sent = send(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += sent;
    /* Room may come before anybody reads: the receiver's buffer grows. */
    say("full: %s", error_name(errno));
    order(control, READ_ALL);
    send(control, &total, sizeof total, 0);
    tells("room", POLL_OUT, POLLOUT | POLLWRNORM | POLLWRBAND, fd);
}

static void with_rights(int fd, int control, pid_t child, int question, int answer) {
    become("somebody else", 65534);
    result("F_SETSIG", fcntl(fd, F_SETSIG, 0));
    result("F_SETOWN", fcntl(fd, F_SETOWN, child));
    order(control, DATA);
    readable(fd);
    take("data", fd);
    become("root", 0);
    ask("a process of root's, in the name of another", question, answer, 0);
    result("F_SETOWN", fcntl(fd, F_SETOWN, child));
    order(control, DATA);
    ask("in root's name", question, answer, PATIENCE_S);
    readable(fd);
    take("data", fd);
}

static void client(address_t peer) {
    int question, answer;
    block();
    setpgid(0, 0);
    pid_t child = bystander(&question, &answer);
    int control = connected(peer);
    await(control);

    int fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    own_by_thread(fd);
    async(fd, 1);
    long begun = connect(fd, (struct sockaddr *)&peer, sizeof peer);
    say("connect: %s", begun < 0 ? error_name(errno) : "0");
    comes("connected", SIGIO);
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    poll(&writable, 1, PATIENCE_S * 1000);
    say("error %d", socket_error(fd));
    async(fd, 0);
    result("nobody", fcntl(fd, F_SETOWN, 0));
    flush();

    plain(fd, control);
    by_ioctl(fd);
    with_information(fd, control);
    with_rights(fd, control, child, question, answer);

    own_by_thread(fd);
    flush();
    order(control, FINISH);
    comes("the end", SIGIO);
    readable(fd);
    take("end", fd);
    flush();
    order(control, RESET);
    comes("reset", SIGIO);
    say("error %s", error_name(socket_error(fd)));
    close(fd);
    close(control);
    close(question);
    waitpid(child, NULL, 0);
}
