/* sendfile with an offset, with the file's position, past the end, and of more than a window. */
#include "parity.h"

enum { SIZE = 3 << 20 };

static void server(int listener) {
    int fd = accepted(listener);
    unsigned sum = 0;
    long total = 0, count;
    unsigned char block[4096];
    while ((count = recv(fd, block, sizeof block, 0)) > 0) {
        total += count;
        for (long i = 0; i < count; i++)
            sum = sum * 31 + block[i];
    }
    say("received %ld, sum %u", total, sum);
    close(fd);
    signal(SIGPIPE, SIG_IGN);
    int written = open("/dev/null", O_WRONLY);
    result("bad file onto a listener", sendfile(listener, 999, NULL, 1));
    result("file that cannot be read onto a listener", sendfile(listener, written, NULL, 1));
}

static void client(address_t peer) {
    char name[] = "/tmp/parity-XXXXXX";
    int file = mkstemp(name), fd = connected(peer);
    unlink(name);
    unsigned char block[4096];
    for (int i = 0; i < SIZE / 4096; i++) {
        for (int k = 0; k < 4096; k++)
            block[k] = (unsigned char)(i * 7 + k * 13);
        if (write(file, block, sizeof block) < 0)
            exit(1);
    }
    lseek(file, 100, SEEK_SET);
    off_t offset = 10;
    result("from an offset", sendfile(fd, file, &offset, 1000));
    say("offset %ld, position %ld", (long)offset, (long)lseek(file, 0, SEEK_CUR));
    result("from the position", sendfile(fd, file, NULL, 500));
    say("position %ld", (long)lseek(file, 0, SEEK_CUR));
    offset = SIZE - 5;
    result("to the end", sendfile(fd, file, &offset, 100));
    result("at the end", sendfile(fd, file, &offset, 100));
    say("offset from the end %ld", (long)(offset - SIZE));
    offset = -1;
    result("before the start", sendfile(fd, file, &offset, 100));
    result("of nothing", sendfile(fd, file, NULL, 0));
    offset = 0;
    while (offset < SIZE && sendfile(fd, file, &offset, SIZE) > 0) {
    }
    say("all: %ld", (long)offset);
    result("bad file", sendfile(fd, 999, NULL, 1));
    int tube[2];
    if (pipe(tube) < 0)
        exit(1);
    worked("pipe", write(tube[1], "p", 1));
    offset = 3;
    result("pipe with an offset", sendfile(fd, tube[0], &offset, 1));
    close(fd);
    close(file);
}
