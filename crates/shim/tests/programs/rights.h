/* A descriptor in a message between two programs (unix(7)); after parity.h. */
#ifndef RIGHTS_H
#define RIGHTS_H

/* The descriptor of the next message, or -1. */
static int taken(int channel) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec place = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int fd = -1;
    if (recvmsg(channel, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void give(int channel, int fd) {
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec place = {".", 1};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(channel, &message, 0) != 1)
        say("not given: %s", error_name(errno));
}

#endif
