/* The client ends its side, the server answers on the other; events and end of stream on the way. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    char text[16];
    long total = 0, count;
    while ((count = recv(fd, text, sizeof text, 0)) > 0)
        total += count;
    result("end of stream", count);
    say("received %ld", total);
    poll_now("after FIN", fd, 0);
    result("answer", send(fd, "answer", 6, 0));
    result("shutdown", shutdown(fd, SHUT_WR));
    result("end again", recv(fd, text, sizeof text, 0));
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    char text[16];
    result("send", send(fd, "twenty bytes of text", 20, 0));
    result("shutdown", shutdown(fd, SHUT_WR));
    result("send after", send(fd, "x", 1, MSG_NOSIGNAL));
    result("recv", recv(fd, text, 6, MSG_WAITALL));
    say("text %.6s", text);
    result("end", recv(fd, text, sizeof text, 0));
    pause_ms(50);
    poll_now("both over", fd, 0);
    close(fd);
}
