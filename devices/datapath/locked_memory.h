#pragma once
// Keeps a process that moves data from ever waiting for memory. A page fault may wait for dirty pages to be
// written, and those may be waiting for this very process. Both are called once, early, by the main thread.

namespace lunkeeper {

// What is in memory stays there, and so does what comes in later (mlockall, on fault). Also secrets never
// reach a swap device or a core dump; and where the kernel allows it, the OOM killer spares this process and
// its children, and they are known to write pages back. What fails is logged, not fatal.
void LockMemory();

// Brings in the code and data of the program and of the libraries its I/O path uses, so that they are there
// when memory is short. After LockMemory.
void PrefaultCode();

}  // namespace lunkeeper
