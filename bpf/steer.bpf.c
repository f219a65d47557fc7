// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers frames into the AF_XDP socket of the queue they arrived on: all of them, or those that
// match a list. Everything else, and everything for a queue without a socket, goes to the kernel.
// Where that is asked for, a steered frame is stamped with the time of its arrival.
//
// Compiled twice: with HARDWARE_STAMPS it takes the stamp from the driver, which ties the loaded
// program to one interface and needs the kernel's type information. A call that is only skipped
// would do the same.

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define STEER_ALL 1
#define STEER_ETHERTYPE 2
#define STEER_UDP 4
#define STEER_IPV6 8

#define VLAN_TAGS_MAX 4
#define EXTENSIONS_MAX 6

struct settings {
	__u32 mode;
	__u32 stamps;
};

// Set before loading; the verifier then removes what is not used.
const volatile struct settings settings = {.mode = STEER_ALL};

// What lies right before a stamped frame. The mark tells it from what else may be in that place.
struct stamp {
	__u64 mark;
	__u64 time_ns;
};

#define STAMP_MARK 0x74772d7374616d70ULL

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 256);
} sockets SEC(".maps");

// EtherType in host order, after the VLAN tags.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u16);
	__type(value, __u8);
	__uint(max_entries, 64);
} ethertypes SEC(".maps");

// UDP destination port in host order.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u16);
	__type(value, __u8);
	__uint(max_entries, 1024);
} udp_ports SEC(".maps");

struct ipv6_block {
	__u32 prefix_bits;
	__u8 address[16];
};

// Blocks of IPv6 destination addresses.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ipv6_block);
	__type(value, __u8);
	__uint(max_entries, 256);
} ipv6_blocks SEC(".maps");

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct extension {
	__u8 next;
	__u8 length;
};

static __always_inline bool is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD) ||
	       ethertype == bpf_htons(0x9100);
}

static __always_inline bool udp_matches(void *at, void *end)
{
	struct udphdr *udp = at;
	if ((void *)(udp + 1) > end)
		return false;
	__u16 port = bpf_ntohs(udp->dest);
	return bpf_map_lookup_elem(&udp_ports, &port) != NULL;
}

static __always_inline bool ipv4_matches(void *at, void *end)
{
	struct iphdr *ip = at;
	if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_UDP || ip->ihl < 5)
		return false;
	// A later fragment has no port, so that the kernel gets all fragments of such a datagram.
	if (ip->frag_off & bpf_htons(0x3fff))
		return false;
	return udp_matches(at + ip->ihl * 4, end);
}

static __always_inline bool ipv6_matches(void *at, void *end)
{
	struct ipv6hdr *ip = at;
	if ((void *)(ip + 1) > end)
		return false;
	if (settings.mode & STEER_IPV6) {
		struct ipv6_block block = {.prefix_bits = 128};
		__builtin_memcpy(block.address, &ip->daddr, sizeof(block.address));
		if (bpf_map_lookup_elem(&ipv6_blocks, &block))
			return true;
	}
	if (!(settings.mode & STEER_UDP))
		return false;
	__u8 next = ip->nexthdr;
	at = ip + 1;
#pragma unroll
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			break;
		struct extension *extension = at;
		if ((void *)(extension + 1) > end)
			return false;
		next = extension->next;
		at += (extension->length + 1) * 8;
	}
	return next == IPPROTO_UDP && udp_matches(at, end);
}

static __always_inline bool matches(struct xdp_md *context)
{
	void *at = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = at;
	if ((void *)(ethernet + 1) > end)
		return false;
	__be16 ethertype = ethernet->h_proto;
	at = ethernet + 1;
#pragma unroll
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		if (!is_vlan(ethertype))
			break;
		struct vlan_tag *tag = at;
		if ((void *)(tag + 1) > end)
			return false;
		ethertype = tag->ethertype;
		at = tag + 1;
	}
	if (settings.mode & STEER_ETHERTYPE) {
		__u16 key = bpf_ntohs(ethertype);
		if (bpf_map_lookup_elem(&ethertypes, &key))
			return true;
	}
	if ((settings.mode & STEER_UDP) && ethertype == bpf_htons(ETH_P_IP))
		return ipv4_matches(at, end);
	if ((settings.mode & (STEER_UDP | STEER_IPV6)) && ethertype == bpf_htons(ETH_P_IPV6))
		return ipv6_matches(at, end);
	return false;
}

#ifdef HARDWARE_STAMPS
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *context, __u64 *timestamp) __ksym;

// The NIC's clock; 0 when the driver has none for this frame.
static __always_inline __u64 arrival_ns(struct xdp_md *context)
{
	__u64 time_ns = 0;
	return bpf_xdp_metadata_rx_timestamp(context, &time_ns) ? 0 : time_ns;
}
#else
// CLOCK_MONOTONIC.
static __always_inline __u64 arrival_ns(struct xdp_md *context)
{
	(void)context;
	return bpf_ktime_get_ns();
}
#endif

static __always_inline void write_stamp(struct xdp_md *context)
{
	__u64 time_ns = arrival_ns(context);
	// A driver that has no room before the frame has no stamps either.
	if (time_ns == 0 || bpf_xdp_adjust_meta(context, -(int)sizeof(struct stamp)))
		return;
	struct stamp *stamp = (void *)(long)context->data_meta;
	if ((void *)(stamp + 1) > (void *)(long)context->data)
		return;
	stamp->mark = STAMP_MARK;
	stamp->time_ns = time_ns;
}

SEC("xdp.frags")
int steer(struct xdp_md *context)
{
	if (!(settings.mode & STEER_ALL) && !matches(context))
		return XDP_PASS;
	if (settings.stamps)
		write_stamp(context);
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
