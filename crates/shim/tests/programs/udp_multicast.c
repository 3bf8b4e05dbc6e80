/* UDP: groups, joined by every call there is, on the link PARITY_LINK; sources, and what loops back. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"
#include <net/if.h>

#ifdef PARITY_V6
#define LEVEL IPPROTO_IPV6
#define GROUP "ff15::77"
#define NOBODY "2001:db8::99"
#define MULTICAST_LOOP IPV6_MULTICAST_LOOP
#define MULTICAST_ALL 29
#else
#define LEVEL IPPROTO_IP
#define GROUP "239.7.7.7"
#define NOBODY "192.0.2.99"
#define MULTICAST_LOOP IP_MULTICAST_LOOP
#define MULTICAST_ALL IP_MULTICAST_ALL
#endif

static unsigned link_index;

static void server(int fd) { (void)fd; }

static int receiver(address_t at, const char *what) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    result(what, bind(fd, (struct sockaddr *)&at, sizeof at));
    return fd;
}

static int join(int fd, int leave) {
#ifdef PARITY_V6
    struct ipv6_mreq request = {.ipv6mr_multiaddr = address_of(GROUP).ADDRESS, .ipv6mr_interface = link_index};
    return setsockopt(fd, LEVEL, leave ? IPV6_LEAVE_GROUP : IPV6_JOIN_GROUP, &request, sizeof request);
#else
    struct ip_mreqn request = {.imr_multiaddr = address_of(GROUP).ADDRESS, .imr_ifindex = (int)link_index};
    return setsockopt(fd, LEVEL, leave ? IP_DROP_MEMBERSHIP : IP_ADD_MEMBERSHIP, &request, sizeof request);
#endif
}

static int plain(int fd, int what) {
    struct group_req request;
    address_t group = address_of(GROUP);
    memset(&request, 0, sizeof request);
    request.gr_interface = link_index;
    memcpy(&request.gr_group, &group, sizeof group);
    return setsockopt(fd, LEVEL, what, &request, sizeof request);
}

static int of_source(int fd, int what, address_t source) {
    struct group_source_req request;
    address_t group = address_of(GROUP);
    source.PORT = 0;
    memset(&request, 0, sizeof request);
    request.gsr_interface = link_index;
    memcpy(&request.gsr_group, &group, sizeof group);
    memcpy(&request.gsr_source, &source, sizeof source);
    return setsockopt(fd, LEVEL, what, &request, sizeof request);
}

static int filter(int fd, unsigned mode, unsigned count, address_t first, address_t second) {
    char room[GROUP_FILTER_SIZE(2)] = {0};
    struct group_filter *all = (void *)room;
    address_t group = address_of(GROUP), sources[] = {first, second};
    all->gf_interface = link_index;
    all->gf_fmode = mode;
    all->gf_numsrc = count;
    memcpy(&all->gf_group, &group, sizeof group);
    for (unsigned n = 0; n < count; n++) {
        sources[n].PORT = 0;
        memcpy(&all->gf_slist[n], &sources[n], sizeof sources[n]);
    }
    return setsockopt(fd, LEVEL, MCAST_MSFILTER, all, GROUP_FILTER_SIZE(count));
}

static void tell_filter(int fd, unsigned room, address_t one, address_t other) {
    char bytes[GROUP_FILTER_SIZE(3)] = {0};
    struct group_filter *all = (void *)bytes;
    address_t group = address_of(GROUP);
    socklen_t len = GROUP_FILTER_SIZE(room);
    int found = 0, found_other = 0;
    all->gf_interface = link_index;
    all->gf_numsrc = room;
    memcpy(&all->gf_group, &group, sizeof group);
    if (result("ask for the filter", getsockopt(fd, LEVEL, MCAST_MSFILTER, all, &len)) < 0)
        return;
    for (unsigned n = 0; n < all->gf_numsrc && n < room; n++) {
        address_t *source = (void *)&all->gf_slist[n];
        found += same_host(*source, one);
        found_other += same_host(*source, other);
    }
    say("mode %d, %d sources in %d bytes: own %d, another %d", (int)all->gf_fmode, (int)all->gf_numsrc, (int)len,
        room ? found : 0, room ? found_other : 0);
}

static void hear(const char *what, int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char text[16], control[128];
    address_t from;
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    if (poll(&entry, 1, 150) == 0) {
        say("%s: nothing", what);
        return;
    }
    long got = recvmsg(fd, &message, 0);
    say("%s: %.*s", what, (int)got, text);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
#ifdef PARITY_V6
        struct in6_pktinfo *info = (void *)CMSG_DATA(one);
        address_t group = address_of(GROUP);
        say("to the group %d by the link %d", !memcmp(&info->ipi6_addr, &group.ADDRESS, 16),
            info->ipi6_ifindex == link_index);
#else
        struct in_pktinfo *info = (void *)CMSG_DATA(one);
        say("to the group %d by the link %d", info->ipi_addr.s_addr == address_of(GROUP).ADDRESS.s_addr,
            info->ipi_ifindex == (int)link_index);
#endif
    }
}

static void client(address_t peer) {
    const char *name = getenv("PARITY_LINK");
    link_index = if_nametoindex(name ? name : "lo");
    address_t any = address_of(FAMILY == AF_INET ? "0.0.0.0" : "::"), group = address_of(GROUP), own = peer;
    socklen_t len = sizeof any;
    int on = 1, off = 0, sender = socket(FAMILY, SOCK_DGRAM, 0), fd = receiver(any, "bind");
    getsockname(fd, (struct sockaddr *)&any, &len);
    group.PORT = own.PORT = any.PORT;
#ifdef PARITY_V6
    result("MULTICAST_IF", setsockopt(sender, LEVEL, IPV6_MULTICAST_IF, &link_index, sizeof link_index));
    setsockopt(fd, LEVEL, IPV6_RECVPKTINFO, &on, sizeof on);
#else
    struct ip_mreqn request = {.imr_ifindex = (int)link_index};
    result("MULTICAST_IF", setsockopt(sender, LEVEL, IP_MULTICAST_IF, &request, sizeof request));
    setsockopt(fd, LEVEL, IP_PKTINFO, &on, sizeof on);
#endif
#define SEND(text) result("sendto " text, sendto(sender, text, strlen(text), 0, (struct sockaddr *)&group, sizeof group))
    SEND("early");
    hear("before joining", fd);
    result("join", join(fd, 0));
    result("join again", join(fd, 0));
    SEND("first");
    hear("a member", fd);
    int other = receiver(any, "bind another");
    SEND("second");
    hear("a member", fd);
    hear("one that has not joined", other);
    result("MULTICAST_ALL off", setsockopt(other, LEVEL, MULTICAST_ALL, &off, sizeof off));
    SEND("third");
    hear("a member", fd);
    hear("one that has not joined", other);
    result("join the other", plain(other, MCAST_JOIN_GROUP));
    SEND("fourth");
    hear("a member", fd);
    hear("the other", other);
    result("leave", plain(other, MCAST_LEAVE_GROUP));
    result("leave again", plain(other, MCAST_LEAVE_GROUP));
    result("MULTICAST_LOOP off", setsockopt(sender, LEVEL, MULTICAST_LOOP, &off, sizeof off));
    SEND("silent");
    hear("a member", fd);
    setsockopt(sender, LEVEL, MULTICAST_LOOP, &on, sizeof on);
    result("block", of_source(fd, MCAST_BLOCK_SOURCE, peer));
    result("block again", of_source(fd, MCAST_BLOCK_SOURCE, peer));
    SEND("blocked");
    hear("a member", fd);
    result("unblock", of_source(fd, MCAST_UNBLOCK_SOURCE, peer));
    SEND("heard");
    hear("a member", fd);
    result("unblock again", of_source(fd, MCAST_UNBLOCK_SOURCE, peer));
    result("source of a whole group", of_source(fd, MCAST_JOIN_SOURCE_GROUP, peer));
    result("leave", join(fd, 1));
    result("leave again", join(fd, 1));
    SEND("gone");
    hear("no member", fd);
    result("join a source", of_source(fd, MCAST_JOIN_SOURCE_GROUP, peer));
    SEND("source");
    hear("a member for the source", fd);
    result("join another source", of_source(fd, MCAST_JOIN_SOURCE_GROUP, address_of(NOBODY)));
    result("join it again", of_source(fd, MCAST_JOIN_SOURCE_GROUP, address_of(NOBODY)));
    result("leave the source", of_source(fd, MCAST_LEAVE_SOURCE_GROUP, peer));
    SEND("unheard");
    hear("a member for another", fd);
    result("block in a list", of_source(fd, MCAST_BLOCK_SOURCE, peer));
    result("leave the other", of_source(fd, MCAST_LEAVE_SOURCE_GROUP, address_of(NOBODY)));

    address_t nobody = address_of(NOBODY);
    result("filter of no member", filter(fd, MCAST_EXCLUDE, 1, peer, peer));
    result("including nobody", filter(fd, MCAST_INCLUDE, 0, peer, peer));
    tell_filter(fd, 2, peer, nobody);
    result("join", join(fd, 0));
    tell_filter(fd, 2, peer, nobody);
    result("no such mode", filter(fd, 7, 0, peer, peer));
    result("all but the sender", filter(fd, MCAST_EXCLUDE, 1, peer, peer));
    SEND("excluded");
    hear("a member", fd);
    tell_filter(fd, 2, peer, nobody);
    result("all but another", filter(fd, MCAST_EXCLUDE, 1, nobody, nobody));
    SEND("not excluded");
    hear("a member", fd);
    tell_filter(fd, 2, peer, nobody);
    result("only these two", filter(fd, MCAST_INCLUDE, 2, peer, nobody));
    SEND("included");
    hear("a member", fd);
    tell_filter(fd, 2, peer, nobody);
    tell_filter(fd, 0, peer, nobody);
    result("only another", filter(fd, MCAST_INCLUDE, 1, nobody, nobody));
    SEND("not included");
    hear("a member", fd);
    result("including nobody", filter(fd, MCAST_INCLUDE, 0, peer, peer));
    result("leave", join(fd, 1));
    close(fd);
    close(other);

    fd = receiver(group, "bind to the group");
    result("join", join(fd, 0));
    SEND("to the group");
    hear("bound to the group", fd);
    result("to the host", sendto(sender, "host", 4, 0, (struct sockaddr *)&own, sizeof own));
    hear("bound to the group", fd);
    result("connect", connect(sender, (struct sockaddr *)&group, sizeof group));
    result("send", send(sender, "connected", 9, 0));
    hear("bound to the group", fd);
    close(fd);
    close(sender);
}
