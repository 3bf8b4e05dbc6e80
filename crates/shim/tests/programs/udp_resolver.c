/* getaddrinfo(3) asks a name server through sockets that libc makes and uses inside itself. IPv4: sockaddr_in. */
#define PARITY_UDP
#include "parity.h"
#include <netdb.h>
#include <resolv.h>

static void server(int fd) {
    for (int questions = 0; questions < 2; questions++) {
        unsigned char packet[600];
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        ssize_t count = recvfrom(fd, packet, 512, 0, (struct sockaddr *)&from, &len);
        if (count < 12) {
            result("recvfrom", count);
            return;
        }
        /* The name, then type and class; whatever is behind them (EDNS) is not answered. */
        unsigned char *end = packet + 12;
        while (*end)
            end += *end + 1;
        int type = end[1] << 8 | end[2];
        say("asked for type %d", type);
        end += 5;
        packet[2] = 0x81, packet[3] = 0x80;
        memset(packet + 6, 0, 6);
        if (type == 1) {
            static const unsigned char answer[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 33};
            packet[7] = 1;
            memcpy(end, answer, sizeof answer);
            end += sizeof answer;
        }
        worked("answer", sendto(fd, packet, (size_t)(end - packet), 0, (struct sockaddr *)&from, len));
    }
    close(fd);
}

static void client(address_t peer) {
    res_init();
    _res.nscount = 1;
    _res.nsaddr_list[0] = peer;
    _res.retrans = 20;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int code = getaddrinfo("shunt.example.", "80", &hints, &found);
    say("getaddrinfo: %s", code ? gai_strerror(code) : "ok");
    for (struct addrinfo *one = found; one; one = one->ai_next) {
        char text[64];
        getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
        say("address %s", text);
    }
    if (found)
        freeaddrinfo(found);
}
