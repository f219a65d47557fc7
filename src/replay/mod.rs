//! Captures: reading and writing pcap and pcapng, and driving a switch in capture time.
