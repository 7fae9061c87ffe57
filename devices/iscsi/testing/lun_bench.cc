// Measures a Lun alone, without FUSE and loop: requests of one size at one depth, for a few seconds.
//   lun_bench PORTAL TARGET INITIATOR read|write|randread|randwrite BLOCK DEPTH SECONDS [spin] [header|all]
// The last are the digests to ask for.
// Prints I/Os and MiB a second, and CPU time an I/O.

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "devices/iscsi/lun_loop.h"

namespace lunkeeper {
namespace {

struct Bench {
  Lun* lun;
  bool write, random;
  uint64_t block, blocks, next = 0, done = 0;
  int error = 0;
  bool stop = false;
  uint32_t pending = 0;
  std::minstd_rand random_source;
};

struct BenchRequest : LunRequest {
  Bench* bench;
};

void SubmitNext(BenchRequest* request) {
  Bench& bench = *request->bench;
  request->op = bench.write ? LunOp::kWrite : LunOp::kRead;
  const uint64_t at = bench.random ? bench.random_source() : bench.next++;
  request->offset = at % bench.blocks * bench.block;
  request->length = bench.block;
  bench.lun->Submit(request);
}

void OnDone(LunRequest* base) {
  auto* request = static_cast<BenchRequest*>(base);
  Bench& bench = *request->bench;
  ++bench.done;
  if (base->error != 0) bench.error = base->error;
  if (bench.stop || base->error != 0) {
    --bench.pending;
  } else {
    SubmitNext(request);
  }
}

double CpuSeconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int Run(LunLoop& loop, Bench& bench, uint32_t depth, int seconds, bool spin) {
  std::vector<char> memory(bench.block * depth + 4096);
  std::vector<BenchRequest> requests(depth);
  const double cpu_before = CpuSeconds();
  const auto begin = Lun::Clock::now();
  for (uint32_t i = 0; i < depth; ++i) {
    requests[i].bench = &bench;
    requests[i].data = memory.data() + i * bench.block;
    requests[i].done = OnDone;
    ++bench.pending;
    SubmitNext(&requests[i]);
  }
  loop.RunUntil([] { return false; }, std::chrono::seconds(seconds), spin);
  const double elapsed = std::chrono::duration<double>(Lun::Clock::now() - begin).count();
  const double cpu = CpuSeconds() - cpu_before;
  const auto done = static_cast<double>(bench.done);
  bench.stop = true;
  loop.RunUntil([&bench] { return bench.pending == 0; }, std::chrono::seconds(30), spin);
  std::printf("%.0f IOPS, %.1f MiB/s, %.2f us CPU an I/O%s\n", done / elapsed,
              done * static_cast<double>(bench.block) / elapsed / 1048576, cpu * 1e6 / done,
              bench.error != 0 ? ", FAILED" : "");
  return bench.error == 0 && bench.pending == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc < 8) {
    std::fprintf(stderr,
                 "usage: %s PORTAL TARGET INITIATOR [rand]read|[rand]write BLOCK DEPTH SECONDS [spin] "
                 "[header|all]\n",
                 argv[0]);
    return 2;
  }
  LunState state{};
  LunOptions options;
  options.connection.portal = argv[1];
  options.connection.target = Iqn(argv[2]);
  options.connection.initiator = Iqn(argv[3]);
  const auto depth = static_cast<uint32_t>(std::atoi(argv[6]));
  options.queue_depth = depth;
  bool spin = false;
  for (int i = 8; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "spin") spin = true;
    if (word == "header") options.connection.digests = Digests::kHeader;
    if (word == "all") options.connection.digests = Digests::kAll;
  }
  const std::unique_ptr<Lun> lun = MakeLun(options, &state);
  LunLoop loop;
  loop.Add(lun.get());
  lun->Start();
  if (!loop.RunUntil([&state] { return state.health == LunHealth::kHealthy; }, std::chrono::seconds(5))) {
    std::fprintf(stderr, "cannot log in: %s\n", state.reason.Load().c_str());
    return 1;
  }
  Bench bench{.lun = lun.get(),
              .write = std::strstr(argv[4], "write") != nullptr,
              .random = std::strncmp(argv[4], "rand", 4) == 0,
              .block = std::strtoull(argv[5], nullptr, 10),
              .blocks = 0,
              .random_source = {}};
  bench.blocks = state.size_bytes / bench.block;
  const int result = Run(loop, bench, depth, std::atoi(argv[7]), spin);
  lun->Close();
  loop.RunUntil([&state] { return state.health == LunHealth::kClosed; }, std::chrono::seconds(2));
  return result;
}

}  // namespace
}  // namespace lunkeeper

int main(int argc, char** argv) { return lunkeeper::Main(argc, argv); }
