//! Virtual time: the event queue, links and node scheduling.
