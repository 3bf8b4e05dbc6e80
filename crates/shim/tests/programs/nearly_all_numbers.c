/* Connections for nearly all descriptors that the limit of open files allows, both ends of each in this process. */
#include "parity.h"
#include <sys/resource.h>

enum { LIMIT = 512, CONNECTIONS = 225 };

static void server(int listener) {
    int open[CONNECTIONS], count = 0, answered = 0, ended = 0;
    char byte;
    while (count < CONNECTIONS && (open[count] = accept(listener, NULL, NULL)) >= 0)
        count++;
    say("accepted: %d%s%s", count, count < CONNECTIONS ? " " : "", count < CONNECTIONS ? error_name(errno) : "");
    for (int i = 0; i < count; i++)
        answered += recv(open[i], &byte, 1, 0) == 1 && send(open[i], &byte, 1, MSG_NOSIGNAL) == 1;
    say("answered: %d", answered);
    for (int i = 0; i < count; i++) {
        ended += recv(open[i], &byte, 1, 0) == 0;
        close(open[i]);
    }
    say("ended: %d", ended);
}

static void client(address_t peer) {
    struct rlimit before, limit;
    int open[CONNECTIONS], count = 0, greeted = 0;
    char byte = 'x';
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = LIMIT;
    worked("a limit", setrlimit(RLIMIT_NOFILE, &limit));
    for (; count < CONNECTIONS; count++) {
        open[count] = socket(FAMILY, SOCK_STREAM, 0);
        if (open[count] < 0 || connect(open[count], (struct sockaddr *)&peer, sizeof peer))
            break;
    }
    say("connected: %d%s%s", count, count < CONNECTIONS ? " " : "", count < CONNECTIONS ? error_name(errno) : "");
    for (int i = 0; i < count; i++)
        greeted += send(open[i], &byte, 1, MSG_NOSIGNAL) == 1;
    for (int i = 0; i < count; i++)
        greeted += recv(open[i], &byte, 1, 0) == 1;
    say("greeted: %d", greeted);
    for (int i = 0; i < count; i++)
        close(open[i]);
    setrlimit(RLIMIT_NOFILE, &before);
}
