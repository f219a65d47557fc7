//! The memory of UMEMs: one range of addresses, of which regions are made real one after another.
//!
//! One range, so that a chunk's place follows from its index alone, whichever region it is in.

use std::ffi::c_void;
use std::io;
use std::ptr;

/// Regions begin at a multiple of this, the size of a huge page on x86-64 and (with 4 KiB pages)
/// on AArch64.
pub(crate) const REGION_ALIGN_BYTES: usize = 2 << 20;

/// Addresses that are set aside for all regions of one store; no memory is behind them yet.
const RANGE_BYTES: usize = 64 << 30;

/// A range of addresses. Not read or written here but through [`slice`](Self::slice) and
/// [`slice_mut`](Self::slice_mut), whose callers know which chunks are theirs.
#[derive(Debug)]
pub(crate) struct Memory {
    mapped: *mut c_void,
    base: *mut u8,
}

// SAFETY: the range belongs to the process; who may touch which bytes is the store's business.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` alone gives no access to the bytes without an unsafe call.
unsafe impl Sync for Memory {}

impl Memory {
    /// Sets addresses aside.
    pub(crate) fn reserve() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = RANGE_BYTES + REGION_ALIGN_BYTES;
        // SAFETY: no address is asked for, so that no mapping of ours is replaced.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let up = mapped.align_offset(REGION_ALIGN_BYTES);
        Ok(Self { mapped, base: mapped.wrapping_byte_add(up).cast() })
    }

    /// Makes `len` bytes from `offset` on real, both multiples of [`REGION_ALIGN_BYTES`]; true when
    /// they lie in reserved huge pages.
    pub(crate) fn make_real(&self, offset: usize, len: usize) -> io::Result<bool> {
        if offset.checked_add(len).is_none_or(|end| end > RANGE_BYTES) {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        let at: *mut c_void = self.base.wrapping_add(offset).cast();
        let is_huge = Self::place_huge_pages(at, len);
        if !is_huge {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: replaces a part of our own range that no region uses yet.
            let got = unsafe { libc::mmap(at, len, protection, flags, -1, 0) };
            if got == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // Transparent huge pages where the kernel has them; a refusal changes nothing.
            // SAFETY: advice about a mapping of our own.
            let _ = unsafe { libc::madvise(at, len, libc::MADV_HUGEPAGE) };
        }
        // The kernel holds these pages for devices: a child process must not share them.
        // SAFETY: advice about a mapping of our own.
        let _ = unsafe { libc::madvise(at, len, libc::MADV_DONTFORK) };
        Ok(is_huge)
    }

    /// Puts reserved huge pages at `at`, a part of a range of ours; false when the system has too
    /// few, and the range is as it was.
    ///
    /// They are mapped elsewhere and moved: a mapping in place that fails for want of pages has
    /// already taken away what was there, and until something is put back another thread's mapping
    /// may land in the hole.
    fn place_huge_pages(at: *mut c_void, len: usize) -> bool {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        // SAFETY: no address is asked for, so that no mapping of ours is replaced.
        let pages = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if pages == libc::MAP_FAILED {
            return false;
        }
        let moving = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: moves the mapping made above, which nothing points into, over a part of our own
        // range that no region uses yet.
        let moved = unsafe { libc::mremap(pages, len, len, moving, at) };
        if moved == libc::MAP_FAILED {
            // A kernel before 5.16 moves no huge pages.
            // SAFETY: the mapping made above, which nothing points into.
            unsafe { libc::munmap(pages, len) };
            return false;
        }
        true
    }

    /// The address of the byte at `offset`, for the kernel.
    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset).addr() as u64
    }

    /// Has the cache fetch what lies at `offset`.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which reads nothing that the program sees and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.wrapping_add(offset).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Bytes of the range.
    ///
    /// # Safety
    /// They lie in a region that was made real, and nobody writes to them while the slice lives,
    /// neither we nor the kernel.
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: the caller's promise; anonymous memory is initialised.
        unsafe { std::slice::from_raw_parts(self.base.wrapping_add(offset), len) }
    }

    /// Bytes of the range, to write.
    ///
    /// # Safety
    /// They lie in a region that was made real, and nobody reads or writes them while the slice
    /// lives, neither we nor the kernel.
    #[allow(clippy::mut_from_ref, reason = "the store owns the bytes, not the range")]
    pub(crate) unsafe fn slice_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: the caller's promise; anonymous memory is initialised.
        unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(offset), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `reserve`; slices of it borrow `self`. Pages that the
        // kernel still uses for a socket stay with the kernel.
        unsafe { libc::munmap(self.mapped, RANGE_BYTES + REGION_ALIGN_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the kernel has a mapping at every page of the range's first `len` bytes.
    fn is_mapped(memory: &Memory, len: usize) -> bool {
        // SAFETY: an asynchronous flush of anonymous memory does nothing but look the pages up.
        unsafe { libc::msync(memory.base.cast(), len, libc::MS_ASYNC) == 0 }
    }

    #[test]
    fn no_hole_opens_where_huge_pages_are_wanted_and_lacking() {
        let memory = Memory::reserve().expect("addresses");
        // More than any machine keeps in reserve.
        assert!(!Memory::place_huge_pages(memory.base.cast(), RANGE_BYTES));
        assert!(is_mapped(&memory, RANGE_BYTES));
        memory.make_real(0, REGION_ALIGN_BYTES).expect("2 MiB");
        assert!(is_mapped(&memory, RANGE_BYTES));
    }
}
