// Writes stamped blocks to a block device or file with many threads and direct I/O, reads them back all the
// while, and tells of every read that shows something older than the last acknowledged write, or something
// never written.
//
//   block_checker write  --device DEVICE --record FILE
//                        [--seconds N] [--threads N] [--blocks N] [--flush-every N] [--pause-ms N] [--tell]
//   block_checker verify --device DEVICE --record FILE
//
// The record is what was sent and what was acknowledged, for each block, in a file mapped by this process: it
// survives the process, and a later run (on another node, after a crash) goes on from it, in a copy that
// takes its place. So an earlier run that is not over, on a fenced node, keeps counting in its own, and what
// it writes to the device from then on shows here as something never sent. `write` ends after N seconds (0:
// at SIGTERM). Each thread stops at its first I/O error. One line of JSON is printed at the end. Exit code: 0
// all well, 1 bad data was read, 2 it could not run, 3 an I/O error and no bad data.
//
// With --tell it prints "acked BLOCK VERSION" for each acknowledged write, before that block's next. A test
// makes another record from this when this one is lost together with its machine.

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "devices/libiscsi/testing/stamp.h"

namespace lunkeeper {
namespace {

using Clock = std::chrono::steady_clock;

struct CheckerOptions {
  std::string device;
  std::string record;
  int seconds = 0;
  unsigned threads = 16;
  uint64_t blocks = 0;
  uint64_t flush_every = 256;
  int pause_ms = 0;
  bool tell = false;
};

struct BlockRecord {
  std::atomic<uint32_t> sent;   // the newest version that was ever sent
  std::atomic<uint32_t> acked;  // the newest that was acknowledged
};
static_assert(sizeof(BlockRecord) == 8);

struct CheckerCounters {
  std::atomic<uint64_t> writes = 0, reads = 0, flushes = 0, io_errors = 0, stale = 0, garbage = 0,
                        longest_us = 0;

  void Took(Clock::time_point start) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    uint64_t seen = longest_us;
    while (seen < static_cast<uint64_t>(us) && !longest_us.compare_exchange_weak(seen, us)) {
    }
  }
  int Print() const {
    printf(
        "{\"writes\": %lu, \"reads\": %lu, \"flushes\": %lu, \"io_errors\": %lu, \"stale\": %lu, "
        "\"garbage\": %lu, "
        "\"longest_ms\": %lu}\n",
        writes.load(), reads.load(), flushes.load(), io_errors.load(), stale.load(), garbage.load(),
        longest_us.load() / 1000);
    if (stale + garbage > 0) return 1;
    return io_errors > 0 ? 3 : 0;
  }
};

std::atomic<bool> stop = false;
void Stop(int) { stop = true; }

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "block_checker: %s: %s\n", what.c_str(), strerror(errno));
  exit(2);
}

struct FreeBuffer {
  void operator()(char* buffer) const { free(buffer); }
};
using Buffer = std::unique_ptr<char, FreeBuffer>;
// Aligned as direct I/O wants it.
Buffer MakeBuffer() { return Buffer(static_cast<char*>(aligned_alloc(kStampBlockBytes, kStampBlockBytes))); }

uint64_t SizeOf(int fd) {
  struct stat info;
  uint64_t bytes = 0;
  if (fstat(fd, &info) != 0) Die("look at the device");
  if (!S_ISBLK(info.st_mode)) return static_cast<uint64_t>(info.st_size);
  if (ioctl(fd, BLKGETSIZE64, &bytes) != 0) Die("ask for the device's size");
  return bytes;
}

class BlockChecker {
 public:
  BlockChecker(const CheckerOptions& options, int open_flags) : options_(options) {
    fd_ = UniqueFd(open(options.device.c_str(), open_flags | O_DIRECT | O_CLOEXEC));
    if (!fd_) Die("open " + options.device);
    blocks_ = SizeOf(fd_.get()) / kStampBlockBytes;
    if (options.blocks > 0) blocks_ = std::min(blocks_, options.blocks);
  }

  // Once the device answers: on a fenced node there is nothing to take over. Of what an earlier run sent
  // without an answer, what is not there now never may be.
  bool TakeOver() {
    const Buffer buffer = MakeBuffer();
    if (!Read(buffer.get(), 0)) return Failed("read", 0);
    CopyRecord();
    MapRecord();
    for (uint64_t block = 0; block < blocks_; ++block) {
      BlockRecord& record = records_[block];
      if (record.sent == record.acked || !Read(buffer.get(), block)) continue;
      const auto version = ReadStamp(StampBlock(buffer.get(), kStampBlockBytes), block);
      if (version && *version >= record.acked && *version <= record.sent)
        record.sent = static_cast<uint32_t>(*version);
    }
    return true;
  }

  // Thread `index` is the only writer of the blocks whose number leaves that remainder; it reads them all.
  void WriteAndCheck(unsigned index) {
    const Buffer buffer = MakeBuffer();
    std::mt19937_64 random(std::random_device{}());
    const uint64_t own = (blocks_ - index + options_.threads - 1) / options_.threads;
    bool well = own > 0;
    for (uint64_t round = 1; well && !stop; ++round) {
      well = Write(buffer.get(), index + options_.threads * (random() % own)) &&
             Check(buffer.get(), random() % blocks_);
      if (well && options_.flush_every > 0 && round % options_.flush_every == 0) well = Flush();
      if (options_.pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    }
  }

  void Verify() {
    MapRecord();
    const Buffer buffer = MakeBuffer();
    for (uint64_t block = 0; block < blocks_; ++block) Check(buffer.get(), block);
  }

  unsigned threads() const { return static_cast<unsigned>(std::min<uint64_t>(options_.threads, blocks_)); }
  int Print() const { return counters_.Print(); }

 private:
  void CopyRecord() const {
    if (!std::filesystem::exists(options_.record)) return;
    const std::string copy = options_.record + ".copy";
    std::filesystem::copy_file(options_.record, copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(copy, options_.record);
  }

  // A record that is there decides how many blocks are checked.
  void MapRecord() {
    const UniqueFd fd(open(options_.record.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct stat info;
    if (!fd || fstat(fd.get(), &info) != 0) Die("open " + options_.record);
    if (info.st_size > 0) blocks_ = std::min<uint64_t>(blocks_, info.st_size / sizeof(BlockRecord));
    const size_t bytes = blocks_ * sizeof(BlockRecord);
    if (info.st_size == 0 && ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
      Die("size " + options_.record);
    void* const map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (map == MAP_FAILED) Die("map " + options_.record);
    records_ = static_cast<BlockRecord*>(map);
  }

  bool Write(char* buffer, uint64_t block) {
    BlockRecord& record = records_[block];
    const uint32_t version = record.sent + 1;
    WriteStamp(StampBlock(buffer, kStampBlockBytes), block, version);
    record.sent = version;
    const auto start = Clock::now();
    const ssize_t done =
        pwrite(fd_.get(), buffer, kStampBlockBytes, static_cast<off_t>(block * kStampBlockBytes));
    counters_.Took(start);
    if (done != static_cast<ssize_t>(kStampBlockBytes)) return Failed("write", block);
    record.acked = version;
    // One write(2), so that threads do not mix their lines; nothing waits in a buffer.
    if (options_.tell) dprintf(STDOUT_FILENO, "acked %lu %u\n", block, version);
    ++counters_.writes;
    return true;
  }

  bool Read(char* buffer, uint64_t block) {
    const auto start = Clock::now();
    const ssize_t done =
        pread(fd_.get(), buffer, kStampBlockBytes, static_cast<off_t>(block * kStampBlockBytes));
    counters_.Took(start);
    return done == static_cast<ssize_t>(kStampBlockBytes);
  }

  bool Check(char* buffer, uint64_t block) {
    const BlockRecord& record = records_[block];
    const uint32_t oldest = record.acked;
    if (!Read(buffer, block)) return Failed("read", block);
    ++counters_.reads;
    const uint32_t newest = record.sent;
    if (oldest == 0) return true;  // never written for certain: anything may be there
    const auto version = ReadStamp(StampBlock(buffer, kStampBlockBytes), block);
    if (!version) {
      Tell("garbage", block, 0, oldest, newest);
      ++counters_.garbage;
    } else if (*version < oldest || *version > newest) {
      Tell("stale", block, *version, oldest, newest);
      ++counters_.stale;
    }
    return true;
  }

  bool Flush() {
    const auto start = Clock::now();
    const int result = fdatasync(fd_.get());
    counters_.Took(start);
    if (result != 0) return Failed("flush", 0);
    ++counters_.flushes;
    return true;
  }

  bool Failed(const char* what, uint64_t block) {
    fprintf(stderr, "block_checker: %s of block %lu: %s\n", what, block, strerror(errno));
    ++counters_.io_errors;
    return false;
  }

  static void Tell(const char* what, uint64_t block, uint64_t version, uint32_t oldest, uint32_t newest) {
    fprintf(stderr, "block_checker: %s: block %lu shows version %lu, not %u to %u\n", what, block, version,
            oldest, newest);
  }

  const CheckerOptions options_;
  UniqueFd fd_;
  uint64_t blocks_ = 0;
  BlockRecord* records_ = nullptr;  // mapped for the life of the process
  CheckerCounters counters_;
};

int RunWrite(const CheckerOptions& options) {
  BlockChecker checker(options, O_RDWR);
  if (!checker.TakeOver()) return checker.Print();
  signal(SIGTERM, Stop);
  signal(SIGINT, Stop);
  std::vector<std::jthread> threads;
  std::atomic<unsigned> running = options.threads;
  for (unsigned index = 0; index < options.threads; ++index) {
    threads.emplace_back([&checker, &running, index] {
      checker.WriteAndCheck(index);
      --running;
    });
  }
  const auto end = Clock::now() + std::chrono::seconds(options.seconds);
  while (!stop && running > 0 && (options.seconds == 0 || Clock::now() < end)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  stop = true;
  threads.clear();
  return checker.Print();
}

int RunVerify(const CheckerOptions& options) {
  BlockChecker checker(options, O_RDONLY);
  checker.Verify();
  return checker.Print();
}

}  // namespace
}  // namespace lunkeeper

int main(int argc, char** argv) {
  lunkeeper::CheckerOptions options;
  CLI::App app("Writes stamped blocks and checks that none is lost, overtaken or torn.");
  app.require_subcommand(1);
  CLI::App* const write = app.add_subcommand("write", "write and check");
  CLI::App* const verify = app.add_subcommand("verify", "check every block of the record once");
  for (CLI::App* command : {write, verify}) {
    command->add_option("--device", options.device)->required();
    command->add_option("--record", options.record)->required();
  }
  write->add_option("--seconds", options.seconds, "0: until SIGTERM");
  write->add_option("--threads", options.threads)->check(CLI::Range(1, 256));
  write->add_option("--blocks", options.blocks, "how many blocks to use; 0: all");
  write->add_option("--flush-every", options.flush_every, "writes of a thread between its flushes; 0: never");
  write->add_option("--pause-ms", options.pause_ms, "between a thread's writes");
  write->add_flag("--tell", options.tell, "print each acknowledged write");
  CLI11_PARSE(app, argc, argv);
  return write->parsed() ? lunkeeper::RunWrite(options) : lunkeeper::RunVerify(options);
}
