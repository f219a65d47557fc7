//! AF_XDP: the UMEM as a frame store, rings, sockets, the BPF program and the poll loop. The only
//! room with `unsafe`.
