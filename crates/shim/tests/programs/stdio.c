/* Calls that libc makes inside itself: streams on sockets, dprintf, and what fclose leaves. */
#include "parity.h"

static char large[300000];

static void server(int listener) {
    int fd = accepted(listener);
    FILE *in = fdopen(fd, "r"), *answer = fdopen(dup(fd), "w");
    char line[100];
    while (fgets(line, sizeof line, in) && strcmp(line, "\n"))
        say("line %s", line);
    worked("fprintf", fprintf(answer, "%d words in %s\n", 3, "an answer"));
    result("fflush", fflush(answer));
    size_t count = fread(large, 1, sizeof large, in);
    long sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += large[i];
    say("fread %zu, sum %ld, eof %d, error %d", count, sum, feof(in) != 0, ferror(in) != 0);
    worked("dprintf", dprintf(fd, "%s\n", "and a last one"));
    result("fclose out", fclose(answer));
    result("fclose in", fclose(in));

    /* The peer resets: reading says so, writing too. */
    fd = accepted(listener);
    in = fdopen(fd, "r+");
    setvbuf(in, NULL, _IONBF, 0);
    result("first", fgetc(in));
    result("reset", fgetc(in));
    say("eof %d, error %d, %s", feof(in) != 0, ferror(in) != 0, error_name(errno));
    result("fclose reset", fclose(in));
}

static void client(address_t peer) {
    int fd = connected(peer);
    FILE *stream = fdopen(fd, "r+");
    say("fileno %d", fileno(stream) == fd);
    worked("fputs", fputs("GET / HTTP/1.0\nHost: here\n", stream));
    worked("putc", putc('\n', stream));
    result("fflush", fflush(stream));
    char *line = NULL;
    size_t room = 0;
    result("getline", getline(&line, &room, stream));
    say("text %s", line);
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * 7 % 101);
    fseek(stream, 0, SEEK_CUR);
    say("fwrite %zu", fwrite(large, 1, sizeof large, stream));
    result("fflush", fflush(stream));
    result("shutdown", shutdown(fd, SHUT_WR));
    result("getline", getline(&line, &room, stream));
    say("text %s", line);
    result("end", getline(&line, &room, stream));
    say("eof %d", feof(stream) != 0);
    result("fclose", fclose(stream));
    result("closed", send(fd, "x", 1, MSG_NOSIGNAL));

    fd = connected(peer);
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    stream = fdopen(fd, "w");
    fputc('!', stream);
    result("fclose", fclose(stream));
    free(line);

    /* A socket that is no longer connected to anything. */
    fd = socket(FAMILY, SOCK_STREAM, 0);
    signal(SIGPIPE, SIG_IGN);
    stream = fdopen(fd, "w");
    fputs("nobody", stream);
    result("fflush", fflush(stream));
    say("error %d", ferror(stream) != 0);
    result("fclose", fclose(stream));
}
