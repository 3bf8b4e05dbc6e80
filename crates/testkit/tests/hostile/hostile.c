/* A program that does what it can to stop the engine that serves it, with what every program has: its descriptors, its
   threads, and memory whose pages never come (userfaultfd(2)).

       hostile linger ADDRESS PORT          sockets with SO_LINGER and unsent bytes, which the engine is the last to close when this
                                            program is killed; a process whose end is a file `hostile-stop` does not read them
       hostile descriptors ADDRESS PORT     calls without end on every descriptor that it has
       hostile names ADDRESS PORT           connections from a bound socket whose lock a call without end keeps
       hostile flood ADDRESS PORT           listeners of ADDRESS, which is the engine's, until there are no more
       hostile scribble ADDRESS PORT        any bytes anywhere in the memory that it shares with the engine, doorbells, and files cut
                                            short, by one process after the other; says how many attempts they made

   ADDRESS and PORT are of a server that echoes otherwise. Started as root, it is an ordinary user before its first socket. It says
   `ready` when its calls are under way and stays until it is killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static char *never; /* the memory whose pages never come */
static struct sockaddr_in server;

/* System calls that no library hears of. */
static long direct(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static void fail(const char *what, long errno_negative) {
    printf("failed: %s: %s\n", what, strerror((int)-errno_negative));
    exit(1);
}

static long must(const char *what, long result) {
    if (result < 0)
        fail(what, result);
    return result;
}

static void prepare_memory(void) {
    long fd = must("userfaultfd", direct(SYS_userfaultfd, O_CLOEXEC, 0, 0, 0, 0, 0));
    struct uffdio_api api = {.api = UFFD_API};
    must("UFFDIO_API", direct(SYS_ioctl, fd, UFFDIO_API, (long)&api, 0, 0, 0));
    never = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register all = {
        .range = {.start = (unsigned long)never, .len = 1 << 20},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    must("UFFDIO_REGISTER", direct(SYS_ioctl, fd, UFFDIO_REGISTER, (long)&all, 0, 0, 0));
}

/* Its end is a reset: nothing is left in TIME-WAIT. */
static int resetting(void) {
    struct linger now = {1, 0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    return fd;
}

static int connected(void) {
    int fd = resetting();
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) < 0)
        fail("connect", -errno);
    return fd;
}

/* So much through the echo that windows are used. */
static void pass(int fd, int bytes) {
    char sent[4096], back[4096];
    memset(sent, 'x', sizeof sent);
    for (int done = 0; done < bytes; done += sizeof sent) {
        int have = 0;
        if (write(fd, sent, sizeof sent) != sizeof sent)
            fail("write", -errno);
        while (have < (int)sizeof back) {
            int got = read(fd, back + have, sizeof back - have);
            if (got <= 0)
                fail("read", -errno);
            have += got;
        }
    }
}

/* A listener of the kernel on loopback that accepts and never reads. */
static struct sockaddr_in deaf(void) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned len = sizeof own;
    long fd = must("socket", direct(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0));
    must("bind", direct(SYS_bind, fd, (long)&own, sizeof own, 0, 0, 0));
    must("listen", direct(SYS_listen, fd, 64, 0, 0, 0, 0));
    must("getsockname", direct(SYS_getsockname, fd, (long)&own, (long)&len, 0, 0, 0));
    return own;
}

/* The deaf in a process and a session of its own, which outlives this one until there is a file `stop`. It comes before the
   first socket. */
static struct sockaddr_in deaf_apart(const char *stop) {
    struct sockaddr_in peer;
    int ends[2];
    must("pipe", direct(SYS_pipe2, (long)ends, 0, 0, 0, 0, 0));
    pid_t child = fork();
    if (child < 0)
        fail("fork", -errno);
    if (child == 0) {
        setsid();
        for (int fd = 0; fd < 3; fd++)
            direct(SYS_close, fd, 0, 0, 0, 0, 0);
        peer = deaf();
        direct(SYS_write, ends[1], (long)&peer, sizeof peer, 0, 0, 0);
        while (access(stop, F_OK) < 0)
            usleep(20000);
        _exit(0);
    }
    if (direct(SYS_read, ends[0], (long)&peer, sizeof peer, 0, 0, 0) != sizeof peer)
        fail("address of the deaf", -EIO);
    return peer;
}

/* Makes a socket one with a connection of the kernel whose peer does not read, and fills it. */
static int fill(int fd, struct sockaddr_in peer) {
    static char bytes[65536];
    if (direct(SYS_connect, fd, (long)&peer, sizeof peer, 0, 0, 0) < 0)
        return 0;
    while (direct(SYS_sendto, fd, (long)bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0) > 0)
        ;
    return 1;
}

static int all_descriptors(int list[256]) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(folder) && count < 256)
            list[count++] = atoi(entry->d_name);
    closedir(folder);
    return count;
}

/* Makes the library prepare sockets for connections to accept, by one that comes from a socket of this program. Whether it can:
   an engine at the kernel's addresses has no connections to them. */
static int accept_one(int known) {
    struct sockaddr_in own, bound = {.sin_family = AF_INET};
    unsigned len = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = resetting();
    if (bind(listener, (struct sockaddr *)&bound, sizeof bound) < 0 || listen(listener, 8) < 0)
        fail("listen", -errno);
    getsockname(known, (struct sockaddr *)&own, &len);
    getsockname(listener, (struct sockaddr *)&bound, &len);
    own.sin_port = bound.sin_port;
    if (connect(fd, (struct sockaddr *)&own, sizeof own) < 0 && errno == ENETUNREACH)
        return 0;
    if (accept(listener, NULL, NULL) < 0)
        fail("accept", -errno);
    return 1;
}

/* Every socket that can be connected, also those that the library has prepared. They stay open: when this process is killed,
   the engine's descriptors are the last ones, and it closes those of connections a while after the prepared ones. */
static void linger_all(struct sockaddr_in peer) {
    struct linger linger = {1, 3600};
    int list[256], filled = 0;
    for (int i = 0; i < 8; i++) {
        list[i] = connected();
        pass(list[i], 4096);
    }
    int expected = accept_one(list[0]) ? 11 : 8;
    int count = all_descriptors(list);
    for (int i = 0; i < count; i++) {
        direct(SYS_fcntl, list[i], F_SETFL, 0, 0, 0, 0);
        if (!fill(list[i], peer))
            continue;
        filled++;
        must("SO_LINGER",
             direct(SYS_setsockopt, list[i], SOL_SOCKET, SO_LINGER, (long)&linger, sizeof linger, 0));
    }
    if (filled < expected)
        fail("prepared sockets", -ENOENT);
}

static void *endless_read(void *number) {
    long fd = (long)number;
    struct iovec part = {never, 4096};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    for (;;) {
        direct(SYS_epoll_wait, fd, (long)never, 1, -1, 0, 0);
        direct(SYS_recvmsg, fd, (long)&message, MSG_PEEK, 0, 0, 0);
        direct(SYS_read, fd, (long)never, 4096, 0, 0, 0);
        usleep(1000);
    }
    return NULL;
}

static void *endless_write(void *number) {
    long fd = (long)number;
    for (;;) {
        direct(SYS_pwrite64, fd, (long)never, 65536, 1 << 20, 0, 0);
        direct(SYS_sendto, fd, (long)never, 65536, MSG_NOSIGNAL, 0, 0);
        usleep(1000);
    }
    return NULL;
}

static void start(void *(*work)(void *), long argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    if (pthread_create(&thread, &attributes, work, (void *)argument))
        fail("pthread_create", -EAGAIN);
}

static void every_descriptor(void) {
    int fds[6], list[256];
    for (int i = 0; i < 6; i++) {
        fds[i] = connected();
        pass(fds[i], 1 << 18);
    }
    int count = all_descriptors(list);
    for (int i = 0; i < count; i++)
        for (int twice = 0; twice < 2; twice++) {
            start(endless_read, list[i]);
            start(endless_write, list[i]);
        }
    usleep(200000);
    /* Now the engine has to close, to ring and to give memory back. */
    for (int i = 0; i < 6; i++)
        close(fds[i]);
}

static void *connect_there(void *number) {
    int fd = (int)(long)number;
    connect(fd, (struct sockaddr *)&server, sizeof server);
    return NULL;
}

/* The lock is taken at any moment of the way to the engine: some of these threads are kept by it themselves. */
static void locked_names(void) {
    struct sockaddr_in peer = deaf();
    for (int i = 0; i < 32; i++) {
        struct sockaddr_in any = {.sin_family = AF_INET};
        int fd = resetting();
        if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0)
            fail("bind", -errno);
        must("connect to the deaf", direct(SYS_connect, fd, (long)&peer, sizeof peer, 0, 0, 0));
        fcntl(fd, F_SETFL, O_NONBLOCK);
        start(connect_there, fd);
        usleep(20 * i);
        start(endless_write, fd);
    }
    usleep(200000);
}

static void flood(void) {
    int made = 0, refused = 0;
    while (made < 20000 && refused < 64) {
        struct sockaddr_in own = server;
        own.sin_port = 0;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0)
            break;
        int is_well = bind(fd, (struct sockaddr *)&own, sizeof own) == 0 && listen(fd, 1) == 0;
        made += is_well;
        refused += !is_well;
    }
    printf("made %d refused %d\n", made, refused);
}

/* Attempts of one process. */
#define ATTEMPTS 50000
/* Where rings and headers are; and where they begin. */
static const size_t HEADS[] = {1 << 20, 1 << 16, 1 << 12};

struct area {
    unsigned char *start;
    size_t bytes;
};

/* The memory files that are mapped here for reading and writing. */
static int shared_memory(struct area areas[64]) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && count < 64 && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (strstr(line, "memfd:") && sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && !strcmp(rights, "rw-s"))
            areas[count++] = (struct area){(unsigned char *)from, to - from};
    }
    fclose(maps);
    return count;
}

static void scribble_once(struct area area, unsigned long chance) {
    size_t bytes = area.bytes;
    if (chance % 4 < 3 && HEADS[chance % 4] < bytes)
        bytes = HEADS[chance % 4];
    size_t place = (chance >> 8) % (bytes - 8) & ~7UL;
    unsigned long *word = (unsigned long *)(area.start + place);
    switch ((chance >> 3) % 8) {
    case 0: *word = 0; break;
    case 1: *word = ~0UL; break;
    case 2: *word += 1; break;
    case 3: *word -= 1; break;
    case 4: *word ^= 1UL << (chance >> 58); break;
    case 5: *word = (unsigned long)random() << 32 | (unsigned long)random(); break;
    case 6: *(unsigned *)word = (unsigned)random(); break;
    default: area.start[place] = (unsigned char)(chance >> 40);
    }
}

static void scribble(unsigned seed, unsigned long *attempts) {
    struct area areas[64];
    int fds[256];
    for (int n = 0; n < 4; n++)
        pass(connected(), 16384);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listen(listener, 8);
    int count = all_descriptors(fds);
    int found = shared_memory(areas);
    if (found == 0)
        fail("shared memory", -ENOENT);
    srandom(seed);
    unsigned long bell = 1;
    for (int n = 0; n < ATTEMPTS; n++) {
        unsigned long chance = (unsigned long)random() << 31 ^ (unsigned long)random() << 8 ^ (unsigned long)random();
        scribble_once(areas[random() % found], chance);
        if (n % 64 == 0)
            for (int one = 0; one < count; one++)
                if (direct(SYS_fcntl, fds[one], F_GET_SEALS, 0, 0, 0, 0) < 0)
                    direct(SYS_write, fds[one], (long)&bell, sizeof bell, 0, 0, 0);
                else
                    direct(SYS_ftruncate, fds[one], n, 0, 0, 0, 0);
        ++*attempts;
    }
}

/* One process after the other: what each spoils is its own. */
static void scribble_on(void) {
    unsigned long *attempts =
        mmap(NULL, sizeof *attempts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned round = 1;; round++) {
        int child = fork();
        if (child == 0) {
            /* What the library says of its own memory is nobody's news here. */
            freopen("/dev/null", "w", stderr);
            signal(SIGPIPE, SIG_IGN);
            scribble(round, attempts);
            direct(SYS_exit_group, 0, 0, 0, 0, 0, 0);
        }
        int status, waited = 0;
        for (; waited < 1000 && waitpid(child, &status, WNOHANG) == 0; waited++)
            usleep(10000);
        if (waited == 1000) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        }
        if (round == 3)
            puts("ready");
        printf("attempts %lu rounds %u\n", *attempts, round);
    }
}

int main(int count, char **words) {
    struct rlimit all;
    struct sockaddr_in peer = {0};
    if (count != 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    server.sin_family = AF_INET;
    inet_pton(AF_INET, words[2], &server.sin_addr);
    server.sin_port = htons(atoi(words[3]));
    getrlimit(RLIMIT_NOFILE, &all);
    all.rlim_cur = all.rlim_max;
    setrlimit(RLIMIT_NOFILE, &all);
    if (!strcmp(words[1], "linger")) {
        char stop[4096];
        snprintf(stop, sizeof stop, "%s-stop", words[0]);
        peer = deaf_apart(stop);
    }
    prepare_memory();
    if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        fail("setuid", -errno);
    if (!strcmp(words[1], "linger"))
        linger_all(peer);
    else if (!strcmp(words[1], "descriptors"))
        every_descriptor();
    else if (!strcmp(words[1], "names"))
        locked_names();
    else if (!strcmp(words[1], "flood"))
        flood();
    else if (!strcmp(words[1], "scribble"))
        scribble_on();
    else
        return 2;
    puts("ready");
    for (;;)
        pause();
}
