/* A program whose memory is locked and bounded has connections all the same, and they cost it what it uses:
   mlockall(2) for all memory to come, and RLIMIT_AS of 4 GiB. */
#include "parity.h"
#include <sys/mman.h>
#include <sys/resource.h>

static long resident_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmRSS:", 6))
            kib = atol(line + 6);
    if (status)
        fclose(status);
    return kib;
}

static void bound(void) {
    struct rlimit limit = {4ul << 30, 4ul << 30};
    result("setrlimit", setrlimit(RLIMIT_AS, &limit));
    result("mlockall", mlockall(MCL_FUTURE));
}

static void pass(int fd) {
    char byte = 'x';
    result("write", write(fd, &byte, 1));
    result("read", read(fd, &byte, 1));
}

static void server(int listener) {
    int fds[16];
    bound();
    for (int i = 0; i < 16; i++) {
        fds[i] = accepted(listener);
        pass(fds[i]);
    }
    result("all of it", mlockall(MCL_CURRENT | MCL_FUTURE));
    pass(fds[0]);
    say("within a gigabyte: %d", resident_kib() < 1 << 20);
    for (int i = 0; i < 16; i++)
        close(fds[i]);
}

static void client(address_t peer) {
    int fds[16];
    bound();
    for (int i = 0; i < 16; i++) {
        fds[i] = connected(peer);
        pass(fds[i]);
    }
    pass(fds[0]);
    say("within a gigabyte: %d", resident_kib() < 1 << 20);
    for (int i = 0; i < 16; i++)
        close(fds[i]);
}
