/* Every option of every level, on sockets in every state: what getsockopt tells of it, and what setsockopt says to values,
   lengths and addresses, right ones and wrong ones. One line for each option and state. */
#include "parity.h"

/* Numbers of no level are above: UDP's begin at 100. */
#define LAST 110
#define ROOM 512
/* linux/in.h: the protocol of a raw socket, and the port of another one. */
#define NUMBER_OF_IP 52

static const struct {
    int level;
    const char *name;
} LEVELS[] = {
    {SOL_SOCKET, "SOL_SOCKET"}, {IPPROTO_IP, "IP"}, {IPPROTO_TCP, "TCP"}, {IPPROTO_UDP, "UDP"}, {IPPROTO_IPV6, "IPV6"},
};

/* Options whose value is not compared, but only its length, and whether there is one. */
static int is_own_value(int level, int name, int has_peer) {
    static const struct {
        int level, name, of_peers;
    } OWN[] = {
        /* An address, a port, the processor, counters of sockets and networks, bytes of the kernel's memory. */
        {SOL_SOCKET, SO_PEERNAME, 0},
        {IPPROTO_IP, NUMBER_OF_IP, 0},
        {SOL_SOCKET, SO_INCOMING_CPU, 0},
        {SOL_SOCKET, SO_COOKIE, 0},
        {SOL_SOCKET, SO_NETNS_COOKIE, 0},
        {SOL_SOCKET, SO_MEMINFO, 0},
        {SOL_SOCKET, SO_INCOMING_NAPI_ID, 0},
        /* Of a connection, what it has grown to. */
        {SOL_SOCKET, SO_SNDBUF, 1},
        {SOL_SOCKET, SO_RCVBUF, 1},
        {IPPROTO_TCP, TCP_WINDOW_CLAMP, 1},
        /* The link's: loopback has another. */
        {IPPROTO_IP, IP_MTU, 0},
        {IPPROTO_IPV6, IPV6_MTU, 0},
        {IPPROTO_IPV6, IPV6_PATHMTU, 0},
        {IPPROTO_TCP, TCP_MAXSEG, 1},
        /* The kernel's default, where an engine has one of its own. */
        {IPPROTO_TCP, TCP_CONGESTION, 0},
        /* The interface of the handshake and the hops that its packet came with: TCP sends no multicast. */
        {IPPROTO_IP, IP_MULTICAST_TTL, 1},
        {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1},
        {IPPROTO_IPV6, IPV6_MULTICAST_IF, 1},
        /* A state, a clock, and what congestion control has seen. */
        {IPPROTO_TCP, TCP_INFO, 0},
        {IPPROTO_TCP, TCP_TIMESTAMP, 0},
        {IPPROTO_TCP, TCP_CC_INFO, 0},
        /* Whether it answers at once depends on what came when. */
        {IPPROTO_TCP, TCP_QUICKACK, 1},
    };
    for (unsigned i = 0; i < sizeof OWN / sizeof *OWN; i++)
        if (OWN[i].level == level && OWN[i].name == name && has_peer >= OWN[i].of_peers)
            return 1;
    return 0;
}

static FILE *line;

static void tell(const char *what, int fd, int level, int name, socklen_t room, int is_own) {
    unsigned char value[ROOM];
    socklen_t len = room;
    memset(value, 0xa5, sizeof value);
    fprintf(line, "%s", what);
    if (getsockopt(fd, level, name, value, &len) < 0) {
        fprintf(line, "%s", error_name(errno));
        return;
    }
    fprintf(line, "%d:", (int)len);
    if (is_own)
        fprintf(line, "own");
    for (unsigned i = 0; !is_own && i < len && i < sizeof value; i++)
        fprintf(line, "%02x", value[i]);
}

/* Whether the option was taken. */
static int set(const char *what, int fd, int level, int name, const void *value, socklen_t len, int is_own) {
    fprintf(line, ", %s ", what);
    if (setsockopt(fd, level, name, value, len) < 0) {
        fprintf(line, "%s", error_name(errno));
        return 0;
    }
    tell("ok ", fd, level, name, ROOM, is_own);
    return 1;
}

/* Whether the socket is no longer as it was. */
static int one_option(int fd, int level, int name, int has_peer) {
    static const int values[] = {0, 1, -1};
    static const char *const words[] = {"0", "1", "-1"};
    const int one[8] = {1};
    int is_own = is_own_value(level, name, has_peer), changed = 0;
    tell(" ", fd, level, name, ROOM, is_own);
    tell(", room 1 ", fd, level, name, 1, 1);
    tell(", room -1 ", fd, level, name, (socklen_t)-1, 1);
    for (int i = 0; i < 3; i++)
        changed |= set(words[i], fd, level, name, &values[i], sizeof values[i], is_own);
    changed |= set("one byte", fd, level, name, one, 1, is_own);
    changed |= set("8 bytes", fd, level, name, one, 8, is_own);
    changed |= set("16 bytes", fd, level, name, one, 16, is_own);
    changed |= set("32 bytes", fd, level, name, one, 32, is_own);
    changed |= set("no bytes", fd, level, name, one, 0, is_own);
    changed |= set("-1 bytes", fd, level, name, one, (socklen_t)-1, is_own);
    changed |= set("NULL", fd, level, name, NULL, sizeof(int), is_own);
    changed |= set("NULL, no bytes", fd, level, name, NULL, 0, is_own);
    return changed;
}

enum state { FRESH, BOUND, LISTENING, CONNECTED, ACCEPTED, SHUT, UDP_FRESH, UDP_BOUND, UDP_ANY, UDP_CONNECTED };

static const char *const STATES[] = {"fresh", "bound", "listening", "connected", "accepted", "shut down",
                                     "udp fresh", "udp bound", "udp any", "udp connected"};

static address_t own;
static int listener, other;

static address_t bound_to(int fd) {
    address_t address;
    socklen_t len = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &len);
    return address;
}

/* A socket in a state; its peer, if it has one, is in `other`. */
static int make(enum state state) {
    address_t any = own;
    any.PORT = 0;
    if (state == UDP_ANY)
        memset(&any.ADDRESS, 0, sizeof any.ADDRESS);
    other = -1;
    int fd = socket(FAMILY, state < UDP_FRESH ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (state == BOUND || state == LISTENING || state == UDP_BOUND || state == UDP_ANY)
        bind(fd, (struct sockaddr *)&any, sizeof any);
    if (state == LISTENING)
        listen(fd, 4);
    if (state == CONNECTED || state == ACCEPTED || state == SHUT || state == UDP_CONNECTED)
        if (connect(fd, (struct sockaddr *)&own, sizeof own) < 0)
            perror("connect");
    if (state != CONNECTED && state != ACCEPTED && state != SHUT)
        return fd;
    other = accepted(listener);
    if (state == SHUT)
        shutdown(fd, SHUT_RDWR);
    if (state != ACCEPTED)
        return fd;
    int accepted = other;
    other = fd;
    return accepted;
}

static void end(int fd) {
    close(fd);
    if (other >= 0)
        close(other);
}

static void every_option(enum state state) {
    int has_peer = state == CONNECTED || state == ACCEPTED || state == SHUT, fd = make(state);
    for (unsigned i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++) {
        for (int name = 0; name <= LAST; name++) {
            char *text = NULL;
            size_t len = 0;
            line = open_memstream(&text, &len);
            int changed = one_option(fd, LEVELS[i].level, name, has_peer);
            fclose(line);
            say("%s, %s %d:%s", STATES[state], LEVELS[i].name, name, text);
            free(text);
            if (changed) {
                end(fd);
                fd = make(state);
            }
        }
    }
    end(fd);
}

/* Whether the listener took a value. */
static int set_on_listener(int fd, int level, int name) {
    static const int one[8] = {1};
    for (socklen_t len = sizeof(int); len <= sizeof one; len *= 2)
        if (setsockopt(fd, level, name, one, len) == 0)
            return 1;
    return 0;
}

/* One that is bound to loopback is reached there alone, and one whose answers have senseless extension headers by nobody. */
static int is_never_reached(int level, int name) {
    return (level == SOL_SOCKET && (name == SO_BINDTOIFINDEX || name == SO_BINDTODEVICE)) ||
           (level == IPPROTO_IPV6 && name >= IPV6_HOPOPTS && name <= IPV6_DSTOPTS);
}

/* What a connection has that its listener was given. */
static void inherits(int level, const char *text, int name) {
    address_t whole = own;
    int fd = make(LISTENING);
    own = bound_to(fd);
    if (!is_never_reached(level, name) && set_on_listener(fd, level, name)) {
        char *said = NULL;
        size_t len = 0;
        int near = connected(own);
        /* TCP_DEFER_ACCEPT waits for it. */
        send(near, "x", 1, MSG_NOSIGNAL);
        int far = accepted(fd);
        line = open_memstream(&said, &len);
        tell("", far, level, name, ROOM, is_own_value(level, name, 1));
        fclose(line);
        say("inherited, %s %d: %s", text, name, said);
        free(said);
        close(far);
        close(near);
    }
    close(fd);
    own = whole;
}

static void server(int fd) { (void)fd; }

static void client(address_t peer) {
    own = peer;
    own.PORT = 0;
    listener = listening(own);
    own = bound_to(listener);
    for (enum state state = FRESH; state <= UDP_CONNECTED; state++)
        every_option(state);
    for (unsigned i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++)
        for (int name = 0; name <= LAST; name++)
            inherits(LEVELS[i].level, LEVELS[i].name, name);
    close(listener);
}
