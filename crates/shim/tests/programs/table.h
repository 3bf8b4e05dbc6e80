/* What table_tcp and table_udp share: the calls, the options, and the walk over all of them. Included once the program
   has its STATES, `there`, where the server's half is, and `nobody`, a port of that host where nobody is. */
#ifndef TABLE_H
#define TABLE_H
#include <netinet/ip.h>
#include <sys/stat.h>

/* The calls. Each returns what the call returned; what is worth more than that it says itself. */
static char buffer[64];

#define CALL(name, ...) \
    static long name(int fd) { __VA_ARGS__ }
#define RECV(name, len, flags) CALL(name, return recv(fd, buffer, len, flags);)
#define SENDS(name, flags) CALL(name, return send(fd, "abc", 3, (flags) | MSG_NOSIGNAL);)

RECV(recv_plain, 4, 0)
RECV(recv_nothing, 0, 0)
RECV(recv_peek, 4, MSG_PEEK)
RECV(recv_all, 4, MSG_WAITALL | MSG_DONTWAIT)
RECV(recv_cut, 4, MSG_TRUNC)
RECV(recv_peek_cut, 4, MSG_PEEK | MSG_TRUNC)
RECV(recv_oob, 4, MSG_OOB)
RECV(recv_error_queue, 4, MSG_ERRQUEUE)
SENDS(send_plain, 0)
SENDS(send_more, MSG_MORE)
SENDS(send_oob, MSG_OOB)
SENDS(send_record, MSG_EOR)
SENDS(send_directly, MSG_DONTROUTE)
CALL(send_nothing, return send(fd, "", 0, MSG_NOSIGNAL);)
CALL(read_some, return read(fd, buffer, 4);)
CALL(write_some, return write(fd, "abc", 3);)
CALL(pread_some, return pread(fd, buffer, 4, 0);)
CALL(pwrite_some, return pwrite(fd, "abc", 3, 0);)
CALL(seek, return lseek(fd, 0, SEEK_CUR);)
CALL(truncates, return ftruncate(fd, 0);)
CALL(syncs, return fsync(fd);)
CALL(is_socket, struct stat about; return fstat(fd, &about) < 0 ? -1 : S_ISSOCK(about.st_mode);)

CALL(readv_two, struct iovec parts[2] = {{buffer, 2}, {buffer + 2, 5}}; return readv(fd, parts, 2);)
CALL(writev_two, struct iovec parts[2] = {{"ab", 2}, {"cde", 3}}; return writev(fd, parts, 2);)
CALL(sendto_peer, return sendto(fd, "abc", 3, MSG_NOSIGNAL, (struct sockaddr *)&there, sizeof there);)
CALL(recvfrom_name, address_t from; socklen_t len = sizeof from;
     long got = recvfrom(fd, buffer, 4, 0, (struct sockaddr *)&from, &len);
     int saved = errno; if (got >= 0) say("  name of %d bytes", (int)len); errno = saved; return got;)
CALL(sendmsg_two, struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
     struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2}; return sendmsg(fd, &message, MSG_NOSIGNAL);)
CALL(recvmsg_two, struct iovec parts[2] = {{buffer, 2}, {buffer + 2, 5}};
     struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_flags = 77}; long got = recvmsg(fd, &message, 0);
     int saved = errno; if (got >= 0) say("  flags %d, name of %d bytes", message.msg_flags, (int)message.msg_namelen);
     errno = saved; return got;)
CALL(sendmmsg_two, struct iovec part = {"ab", 2}; struct mmsghdr two[2] = {
     {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
     return sendmmsg(fd, two, 2, MSG_NOSIGNAL);)
CALL(recvmmsg_two, struct iovec part = {buffer, 4}; struct mmsghdr two[2] = {
     {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
     return recvmmsg(fd, two, 2, MSG_DONTWAIT, NULL);)

CALL(binds, address_t own = there; own.PORT = 0; return bind(fd, (struct sockaddr *)&own, sizeof own);)
CALL(binds_short, address_t own = there; return bind(fd, (struct sockaddr *)&own, 3);)
CALL(binds_foreign, address_t other = address_of(STRANGER); other.KIND = FAMILY;
     return bind(fd, (struct sockaddr *)&other, sizeof other);)
CALL(binds_family, address_t own = there; own.KIND = AF_UNIX; return bind(fd, (struct sockaddr *)&own, sizeof own);)
CALL(listens_now, return listen(fd, 4);)
CALL(accepts, int child = accept(fd, NULL, NULL); if (child < 0) return -1; close(child); return 0;)
CALL(accepts_name, address_t from; socklen_t len = sizeof from;
     int child = accept4(fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC); if (child < 0) return -1;
     say("  name of %d bytes, %d, %d", (int)len, fcntl(child, F_GETFD), !!(fcntl(child, F_GETFL) & O_NONBLOCK));
     close(child); return 0;)
CALL(accepts_wrong, return accept4(fd, NULL, NULL, 12345);)
CALL(connects, return connect(fd, (struct sockaddr *)&nobody, sizeof nobody);)
CALL(connects_short, return connect(fd, (struct sockaddr *)&nobody, 3);)
CALL(connects_unspecified, address_t none = nobody; none.KIND = AF_UNSPEC;
     return connect(fd, (struct sockaddr *)&none, sizeof none);)
CALL(own_name, address_t name; socklen_t len = sizeof name; memset(&name, 0, sizeof name);
     int done = getsockname(fd, (struct sockaddr *)&name, &len); int saved = errno;
     if (done >= 0) say("  %d bytes, family %d, port %d, any %d", (int)len, name.KIND == FAMILY, name.PORT != 0, is_any(name));
     errno = saved; return done;)
CALL(peer_name, address_t name; socklen_t len = sizeof name;
     int done = getpeername(fd, (struct sockaddr *)&name, &len); int saved = errno;
     if (done >= 0) say("  %d bytes, right %d", (int)len, name.PORT == there.PORT); errno = saved; return done;)
CALL(shutdown_rd, return shutdown(fd, SHUT_RD);)
CALL(shutdown_wr, return shutdown(fd, SHUT_WR);)
CALL(shutdown_both, return shutdown(fd, SHUT_RDWR);)

CALL(polls, poll_now("  events", fd, 0); return 0;)
CALL(selects, fd_set in, out, err; FD_ZERO(&in); FD_SET(fd, &in); out = err = in; struct timeval none = {0, 0};
     int got = select(fd + 1, &in, &out, &err, &none);
     say("  %d %d %d", !!FD_ISSET(fd, &in), !!FD_ISSET(fd, &out), !!FD_ISSET(fd, &err)); return got;)
static long epolls(int fd, unsigned more) {
    /* News of what has just become so is an edge of its own while it is on its way. */
    if (more & EPOLLET)
        pause_ms(5);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | more};
    int set = epoll_create1(0), added = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    event.events = 0;
    int first = epoll_wait(set, &event, 1, 0);
    events("  first", event.events);
    event.events = 0;
    int second = epoll_wait(set, &event, 1, 0);
    events("  again", event.events);
    close(set);
    return added < 0 ? -1 : first * 10 + second;
}
CALL(epolls_level, return epolls(fd, 0);)
CALL(epolls_edge, return epolls(fd, EPOLLET);)
CALL(epolls_once, return epolls(fd, EPOLLONESHOT);)
CALL(unread, int count = -1; int done = ioctl(fd, FIONREAD, &count); return done < 0 ? -1 : count;)
CALL(at_mark, int mark = -1; int done = ioctl(fd, SIOCATMARK, &mark); return done < 0 ? -1 : mark;)
CALL(io_flags, return fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_APPEND);)
CALL(sends_file, int file = open("/etc/hostname", O_RDONLY); off_t at = 0; long done = sendfile(fd, file, &at, 1);
     int saved = errno; close(file); errno = saved; return done;)
CALL(splices_in, int ends[2]; if (pipe(ends) < 0) return -2; long got = splice(fd, NULL, ends[1], NULL, 4, SPLICE_F_NONBLOCK);
     int saved = errno; close(ends[0]); close(ends[1]); errno = saved; return got;)
CALL(splices_out, int ends[2]; if (pipe(ends) < 0 || write(ends[1], "ab", 2) != 2) return -2;
     long got = splice(ends[0], NULL, fd, NULL, 2, SPLICE_F_NONBLOCK);
     int saved = errno; close(ends[0]); close(ends[1]); errno = saved; return got;)
CALL(duplicate_reads, int twin = dup(fd); long got = recv(twin, buffer, 4, 0); int saved = errno; close(twin); errno = saved; return got;)

struct call {
    const char *name;
    long (*run)(int fd);
    /* Not in states of this kind. */
    int except;
};

static const struct call CALLS[] = {
    {"recv", recv_plain, 0}, {"recv 0", recv_nothing, 0}, {"recv PEEK", recv_peek, 0}, {"recv WAITALL", recv_all, 0},
    {"recv TRUNC", recv_cut, 0}, {"recv PEEK TRUNC", recv_peek_cut, 0}, {"recv OOB", recv_oob, 0},
    {"recv ERRQUEUE", recv_error_queue, 0}, {"send", send_plain, 0}, {"send MORE", send_more, 0},
    {"send OOB", send_oob, 0}, {"send EOR", send_record, 0}, {"send DONTROUTE", send_directly, 0},
    {"send 0", send_nothing, 0}, {"read", read_some, 0}, {"write", write_some, 0}, {"pread", pread_some, 0},
    {"pwrite", pwrite_some, 0}, {"lseek", seek, 0}, {"ftruncate", truncates, 0}, {"fsync", syncs, 0},
    {"fstat", is_socket, 0}, {"readv", readv_two, 0}, {"writev", writev_two, 0}, {"sendto", sendto_peer, 0},
    {"recvfrom", recvfrom_name, 0}, {"sendmsg", sendmsg_two, 0}, {"recvmsg", recvmsg_two, 0},
    {"sendmmsg", sendmmsg_two, GONE}, {"recvmmsg", recvmmsg_two, 0}, {"bind", binds, ENDED},
    {"bind short", binds_short, 0}, {"bind foreign", binds_foreign, ENDED}, {"bind family", binds_family, 0},
    {"listen", listens_now, 0}, {"accept", accepts, 0}, {"accept4", accepts_name, 0},
    {"accept4 wrong", accepts_wrong, 0}, {"connect", connects, 0}, {"connect short", connects_short, 0},
    {"connect UNSPEC", connects_unspecified, 0}, {"getsockname", own_name, 0}, {"getpeername", peer_name, 0},
    {"SHUT_RD", shutdown_rd, 0}, {"SHUT_WR", shutdown_wr, 0}, {"SHUT_RDWR", shutdown_both, 0}, {"poll", polls, 0},
    {"select", selects, 0}, {"epoll", epolls_level, 0}, {"epoll ET", epolls_edge, 0},
    {"epoll ONESHOT", epolls_once, 0}, {"FIONREAD", unread, 0}, {"SIOCATMARK", at_mark, 0}, {"F_GETFL", io_flags, 0},
    {"sendfile", sends_file, 0}, {"splice in", splices_in, 0}, {"splice out", splices_out, 0},
    {"dup, recv", duplicate_reads, 0},
};

/* Options whose value is the same everywhere, or whose presence is all that is compared. */
struct option {
    const char *name;
    int level, option, value_told;
};

static const struct option OPTIONS[] = {
    {"SO_ERROR", SOL_SOCKET, SO_ERROR, 1}, {"SO_TYPE", SOL_SOCKET, SO_TYPE, 1},
    {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN, 1}, {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL, 1},
    {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN, 1}, {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},
    {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1}, {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1}, {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},
    {"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE, 1}, {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 1},
    {"SO_SNDLOWAT", SOL_SOCKET, SO_SNDLOWAT, 1}, {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 1},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 0}, {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 0},
    {"unknown", SOL_SOCKET, 9999, 1}, {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1}, {"level unknown", 250, 1, 1},
};
#endif
