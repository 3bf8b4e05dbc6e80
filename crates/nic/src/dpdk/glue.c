/*
 * What Rust cannot call by itself: DPDK's per-packet functions are static inlines, its structures have bit
 * fields and change between releases, and its constants are macros. Everything that crosses is declared a
 * second time in ffi.rs, whose tests compare the sizes; nothing of DPDK's own layout is known there.
 *
 * Read first: the mbuf and ethdev chapters of DPDK's programmer's guide. Decides nothing: that is Rust's.
 */

#define _GNU_SOURCE
/* Events of a device, which DPDK 22.11 has and calls so. */
#define ALLOW_EXPERIMENTAL_API

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/* What a port can do, and is asked to do. The same numbers as in ffi.rs. */
enum {
	ABLE_TX_CHECKSUM = 1 << 0,
	ABLE_TX_SEGMENTS = 1 << 1, /* frames of several mbufs */
	ABLE_TX_TSO = 1 << 2,
	ABLE_RX_CHECKSUM = 1 << 3,
	ABLE_RX_SCATTER = 1 << 4,
	ABLE_RSS = 1 << 5,
	ABLE_RX_INTERRUPT = 1 << 6, /* only asked for: nobody knows before */
};

#define TX_CHECKSUM \
	(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM)
#define RX_CHECKSUM (RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)
#define RSS_OF_TCP (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP)

int
shunt_eal_init(int argc, char **argv)
{
	pthread_t self = pthread_self();
	cpu_set_t before;
	int has_before = pthread_getaffinity_np(self, sizeof(before), &before) == 0;
	int result = rte_eal_init(argc, argv);
	int error = rte_errno;

	/* It binds its caller to the processor of its first lcore; ours go where --cpu says. */
	if (has_before)
		pthread_setaffinity_np(self, sizeof(before), &before);
	if (result < 0)
		return error > 0 ? -error : -EINVAL;

	/* The tap driver has the kernel send a real-time signal for each frame. DPDK's interrupt thread, which
	 * exists by now, takes them; the engine's threads, which this one starts, inherit the mask. */
	sigset_t trigger;
	sigemptyset(&trigger);
	for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
		sigaddset(&trigger, number);
	sigaddset(&trigger, SIGIO);
	return -pthread_sigmask(SIG_BLOCK, &trigger, NULL);
}

/* An lcore number gives a thread caches of mbufs. */
int
shunt_register_thread(void)
{
	return rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0;
}

void
shunt_unregister_thread(void)
{
	rte_thread_unregister();
}

int
shunt_probe(const char *arguments)
{
	return rte_dev_probe(arguments);
}

int
shunt_port_by_name(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

struct about {
	uint8_t hardware_address[6];
	uint16_t mtu;
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t tx_segments;
	int16_t numa_node;
	uint32_t able;
	uint32_t is_virtual;
	char driver[32];
};

static uint32_t
able_of(const struct rte_eth_dev_info *info)
{
	uint64_t tx = info->tx_offload_capa, rx = info->rx_offload_capa;
	uint32_t able = 0;

	if ((tx & TX_CHECKSUM) == TX_CHECKSUM)
		able |= ABLE_TX_CHECKSUM;
	if (tx & RTE_ETH_TX_OFFLOAD_MULTI_SEGS)
		able |= ABLE_TX_SEGMENTS;
	if (tx & RTE_ETH_TX_OFFLOAD_TCP_TSO)
		able |= ABLE_TX_TSO;
	if ((rx & RX_CHECKSUM) == RX_CHECKSUM)
		able |= ABLE_RX_CHECKSUM;
	if (rx & RTE_ETH_RX_OFFLOAD_SCATTER)
		able |= ABLE_RX_SCATTER;
	if (info->flow_type_rss_offloads & RSS_OF_TCP)
		able |= ABLE_RSS;
	return able;
}

int
shunt_about(uint16_t port, struct about *about)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr address;
	const struct rte_bus *bus;
	int result = rte_eth_dev_info_get(port, &info);

	memset(about, 0, sizeof(*about));
	if (result == 0)
		result = rte_eth_macaddr_get(port, &address);
	if (result == 0)
		result = rte_eth_dev_get_mtu(port, &about->mtu);
	if (result != 0)
		return result;
	memcpy(about->hardware_address, address.addr_bytes, sizeof(about->hardware_address));
	about->rx_queues = info.max_rx_queues;
	about->tx_queues = info.max_tx_queues;
	about->tx_segments = info.tx_desc_lim.nb_seg_max;
	about->numa_node = rte_eth_dev_socket_id(port);
	about->able = able_of(&info);
	bus = info.device == NULL ? NULL : rte_dev_bus(info.device);
	about->is_virtual = bus != NULL && strcmp(rte_bus_name(bus), "vdev") == 0;
	if (info.driver_name != NULL)
		strncpy(about->driver, info.driver_name, sizeof(about->driver) - 1);
	return 0;
}

struct setup {
	uint16_t queues;
	uint16_t rx_ring;
	uint16_t tx_ring;
	uint16_t mtu;
	uint32_t able;
	struct rte_mempool *rx_pool;
};

/* Makes both rings as long as the device takes them. */
int
shunt_configure(uint16_t port, struct setup *setup)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = setup->mtu;
	if (setup->able & ABLE_RX_CHECKSUM)
		conf.rxmode.offloads |= RX_CHECKSUM;
	if (setup->able & ABLE_RX_SCATTER)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
	if (setup->able & ABLE_TX_CHECKSUM)
		conf.txmode.offloads |= TX_CHECKSUM;
	if (setup->able & ABLE_TX_SEGMENTS)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (setup->able & ABLE_TX_TSO)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_TSO;
	if (setup->able & ABLE_RSS) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = RSS_OF_TCP & info.flow_type_rss_offloads;
	}
	conf.intr_conf.rxq = (setup->able & ABLE_RX_INTERRUPT) != 0;
	result = rte_eth_dev_configure(port, setup->queues, setup->queues, &conf);
	if (result != 0)
		return result;
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, &setup->rx_ring, &setup->tx_ring);
}

int
shunt_start(uint16_t port, const struct setup *setup)
{
	int node = rte_eth_dev_socket_id(port), result = 0;
	struct rte_eth_stats none;

	for (uint16_t queue = 0; queue < setup->queues && result == 0; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, setup->rx_ring, node, NULL, setup->rx_pool);
		if (result == 0)
			result = rte_eth_tx_queue_setup(port, queue, setup->tx_ring, node, NULL);
	}
	if (result == 0)
		result = rte_eth_dev_start(port);
	if (result == 0 && rte_eth_stats_get(port, &none) == 0)
		rte_eth_stats_reset(port);
	return result;
}

/* Has the port spread frames over its queues by this key and table; a longer table repeats it. */
int
shunt_spread(uint16_t port, uint8_t *key, uint32_t key_len, const uint16_t *table, uint32_t entries)
{
	struct rte_eth_rss_reta_entry64 all[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	struct rte_eth_dev_info info;
	struct rte_eth_rss_conf conf;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	memset(&conf, 0, sizeof(conf));
	conf.rss_key = key;
	conf.rss_key_len = info.hash_key_size == 0 ? 40 : info.hash_key_size;
	conf.rss_hf = RSS_OF_TCP & info.flow_type_rss_offloads;
	if (conf.rss_key_len > key_len || info.reta_size == 0 || info.reta_size % entries != 0 ||
	    info.reta_size > RTE_ETH_RSS_RETA_SIZE_512)
		return -ENOTSUP;
	result = rte_eth_dev_rss_hash_update(port, &conf);
	if (result != 0)
		return result;
	memset(all, 0, sizeof(all));
	for (uint16_t entry = 0; entry < info.reta_size; entry++) {
		struct rte_eth_rss_reta_entry64 *group = &all[entry / RTE_ETH_RETA_GROUP_SIZE];

		group->mask |= UINT64_C(1) << (entry % RTE_ETH_RETA_GROUP_SIZE);
		group->reta[entry % RTE_ETH_RETA_GROUP_SIZE] = table[entry % entries];
	}
	return rte_eth_dev_rss_reta_update(port, all, info.reta_size);
}

void
shunt_stop(uint16_t port)
{
	rte_eth_dev_stop(port);
}

static struct rte_device *
device_of(uint16_t port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
}

/* The kernel wants the device back, since it is drawn from its slot or given to another driver: by port. It waits until
 * whoever has it has closed it. Set by DPDK's interrupt thread. */
static int is_recalled[RTE_MAX_ETHPORTS];

static void
on_event(const char *name, enum rte_dev_event_type event, void *port)
{
	(void)name;
	if (event == RTE_DEV_EVENT_REMOVE)
		__atomic_store_n(&is_recalled[(uintptr_t)port], 1, __ATOMIC_RELAXED);
}

int
shunt_listen_for_recall(uint16_t port)
{
	struct rte_device *device = device_of(port);

	__atomic_store_n(&is_recalled[port], 0, __ATOMIC_RELAXED);
	return device == NULL ? -ENODEV : rte_dev_event_callback_register(rte_dev_name(device), on_event, (void *)(uintptr_t)port);
}

int
shunt_is_recalled(uint16_t port)
{
	return __atomic_load_n(&is_recalled[port], __ATOMIC_RELAXED);
}

/* What the kernel's request does, where the device is to be let go for another reason. */
void
shunt_recall(uint16_t port)
{
	struct rte_device *device = device_of(port);

	if (device != NULL)
		rte_dev_event_callback_process(rte_dev_name(device), RTE_DEV_EVENT_REMOVE);
}

/* The port, and the device behind it, so that another may have its name. */
void
shunt_close(uint16_t port)
{
	struct rte_device *device = device_of(port);

	/* Nothing else unregisters it; it is refused for the moment in which the event is told. */
	while (device != NULL && rte_dev_event_callback_unregister(rte_dev_name(device), on_event, (void *)(uintptr_t)port) == -EAGAIN)
		sched_yield();
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (device != NULL)
		rte_dev_remove(device);
}

/* All groups that are listened to; where the device keeps no list, it lets in all of them. */
int
shunt_groups(uint16_t port, uint8_t (*groups)[6], uint32_t count)
{
	int result = rte_eth_dev_set_mc_addr_list(port, (struct rte_ether_addr *)groups, count);

	if (result != 0 && count > 0)
		result = rte_eth_allmulticast_enable(port);
	if (result != 0 && count > 0)
		result = rte_eth_promiscuous_enable(port);
	return count > 0 ? result : 0;
}

int
shunt_is_linked(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
}

struct counts {
	uint64_t lost_receiving;
	uint64_t lost_sending;
	uint64_t sent;
};

void
shunt_counts(uint16_t port, struct counts *counts)
{
	struct rte_eth_stats stats;

	memset(counts, 0, sizeof(*counts));
	if (rte_eth_stats_get(port, &stats) == 0) {
		counts->lost_receiving = stats.imissed + stats.ierrors + stats.rx_nombuf;
		counts->lost_sending = stats.oerrors;
		counts->sent = stats.opackets;
	}
}

/* Interrupts: `epoll` becomes readable when the queue has frames. Asking for what most virtual devices lack
 * would log an error for each. */
int
shunt_watch(uint16_t port, uint16_t queue, int epoll)
{
	int type = rte_log_register("lib.ethdev"), level = rte_log_get_level(type), result;

	if (type >= 0)
		rte_log_set_level(type, RTE_LOG_CRIT);
	result = rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_ADD, NULL);
	if (type >= 0 && level >= 0)
		rte_log_set_level(type, level);
	return result;
}

void
shunt_arm(uint16_t port, uint16_t queue)
{
	/* Where it is not supported the interrupt is always armed. */
	rte_eth_dev_rx_intr_enable(port, queue);
}

void
shunt_disarm(uint16_t port, uint16_t queue, int epoll)
{
	struct rte_epoll_event event;

	rte_eth_dev_rx_intr_disable(port, queue);
	rte_epoll_wait(epoll, &event, 1, 0);
}

struct rte_mempool *
shunt_pool(const char *name, uint32_t count, uint16_t room, int node)
{
	return rte_pktmbuf_pool_create(name, count, 256, 0, room + RTE_PKTMBUF_HEADROOM, node);
}

void
shunt_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

int
shunt_errno(void)
{
	return rte_errno;
}

uint16_t
shunt_receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t
shunt_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_prepare(port, queue, mbufs, count);
}

uint16_t
shunt_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

struct frame {
	const uint8_t *data;
	uint32_t first_len;
	uint32_t len;
	uint32_t checksum; /* 0 unknown, 1 verified, 2 verified but the field is not filled in */
};

void
shunt_look(const struct rte_mbuf *mbuf, struct frame *frame)
{
	uint64_t sum = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

	frame->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	frame->first_len = mbuf->data_len;
	frame->len = mbuf->pkt_len;
	frame->checksum = sum == RTE_MBUF_F_RX_L4_CKSUM_GOOD ? 1 : sum == RTE_MBUF_F_RX_L4_CKSUM_NONE ? 2 : 0;
}

/* Copies at most `len` bytes of all parts and returns how many those were. */
uint32_t
shunt_gather(const struct rte_mbuf *mbuf, uint8_t *target, uint32_t len)
{
	uint32_t at = 0;

	for (; mbuf != NULL && at < len; mbuf = mbuf->next) {
		uint32_t part = RTE_MIN(mbuf->data_len, len - at);
		memcpy(target + at, rte_pktmbuf_mtod(mbuf, const uint8_t *), part);
		at += part;
	}
	return at;
}

void
shunt_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

/* `count` mbufs of one frame of `len` bytes, `room` in each; null: there are none. */
struct rte_mbuf *
shunt_make(struct rte_mempool *pool, uint32_t len, uint16_t room)
{
	struct rte_mbuf *parts[64];
	uint32_t count = len <= room ? 1 : (len + room - 1) / room;

	if (count > RTE_DIM(parts) || rte_pktmbuf_alloc_bulk(pool, parts, count) != 0)
		return NULL;
	parts[0]->pkt_len = len;
	parts[0]->nb_segs = count;
	for (uint32_t index = 0; index < count; index++) {
		uint32_t part = RTE_MIN(len, room);
		parts[index]->data_len = part;
		parts[index]->next = index + 1 < count ? parts[index + 1] : NULL;
		len -= part;
	}
	return parts[0];
}

/* The next part, with its bytes; null after the last. */
struct rte_mbuf *
shunt_part(struct rte_mbuf *mbuf, uint8_t **data, uint32_t *len)
{
	*data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	*len = mbuf->data_len;
	return mbuf->next;
}

struct offload {
	uint16_t ip;  /* where the IP header starts */
	uint16_t transport;
	uint16_t payload;
	uint16_t segment; /* payload of each frame to be cut to; 0: not to be cut */
	uint32_t is_v6;
	uint32_t is_tcp;
};

/* All headers lie in the first part: the caller has checked it. */
void
shunt_offload(struct rte_mbuf *mbuf, const struct offload *offload)
{
	uint8_t *bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);
	uint8_t *ip = bytes + offload->ip, *transport = bytes + offload->transport;
	uint64_t flags = offload->is_v6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
	uint16_t sum;

	flags |= offload->is_tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
	if (offload->segment > 0) {
		flags |= RTE_MBUF_F_TX_TCP_SEG;
		/* Each frame gets a length of its own, so the header's sum is the device's too. */
		if (!offload->is_v6) {
			flags |= RTE_MBUF_F_TX_IP_CKSUM;
			((struct rte_ipv4_hdr *)ip)->hdr_checksum = 0;
		}
	}
	/* The pseudo header as rte_mbuf_core.h wants it: without a length where the frame is cut. */
	sum = offload->is_v6 ? rte_ipv6_phdr_cksum((const struct rte_ipv6_hdr *)ip, flags) :
			       rte_ipv4_phdr_cksum((const struct rte_ipv4_hdr *)ip, flags);
	if (offload->is_tcp)
		((struct rte_tcp_hdr *)transport)->cksum = sum;
	else
		((struct rte_udp_hdr *)transport)->dgram_cksum = sum;
	mbuf->l2_len = offload->ip;
	mbuf->l3_len = offload->transport - offload->ip;
	mbuf->l4_len = offload->payload - offload->transport;
	mbuf->tso_segsz = offload->segment;
	mbuf->ol_flags |= flags;
}

/* Frames on their way from the core that received them to the core that has their connection. */
struct rte_ring *
shunt_ring(const char *name, uint32_t count, int node)
{
	return rte_ring_create(name, count, node, RING_F_SC_DEQ);
}

int
shunt_ring_put(struct rte_ring *ring, struct rte_mbuf *mbuf)
{
	return rte_ring_enqueue(ring, mbuf) == 0;
}

uint32_t
shunt_ring_take(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_ring_dequeue_burst(ring, (void **)mbufs, count, NULL);
}

int
shunt_ring_is_empty(const struct rte_ring *ring)
{
	return rte_ring_empty(ring);
}

void
shunt_ring_free(struct rte_ring *ring)
{
	rte_ring_free(ring);
}

/* For the test that compares them with ffi.rs. */
void
shunt_sizes(uint32_t sizes[5])
{
	sizes[0] = sizeof(struct about);
	sizes[1] = sizeof(struct setup);
	sizes[2] = sizeof(struct counts);
	sizes[3] = sizeof(struct frame);
	sizes[4] = sizeof(struct offload);
}
