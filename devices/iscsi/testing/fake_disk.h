#pragma once
// What a FakeTarget's disk says of itself. Plain data, to be changed at any time.

#include <cstdint>
#include <string>
#include <vector>

namespace lunkeeper::iscsi {

struct FakeDisk {
  static constexpr uint32_t kBlockSize = 512;

  std::string serial = "serial-1";
  std::string product = "0123456789abcdef";
  uint64_t blocks = 8192;
  bool write_cache = true, takes_fua = false;
  bool unmap = false;
  bool write_same_unmap = false;
  uint32_t max_transfer = 0;  // blocks
};

// The answer to a question of the login (scsi.h), as long as it is; empty: the disk does not know the
// question.
std::vector<uint8_t> AnswerOf(const FakeDisk& disk, const uint8_t* cdb);

}  // namespace lunkeeper::iscsi
