#include "devices/iscsi/testing/fake_disk.h"

#include <algorithm>

#include "devices/iscsi/pdu.h"

namespace lunkeeper::iscsi {

std::vector<uint8_t> AnswerOf(const FakeDisk& disk, const uint8_t* cdb) {
  std::vector<uint8_t> answer(cdb[0] == 0x12 && cdb[1] == 1 ? 64 : 36);
  if (cdb[0] == 0x12 && cdb[1] == 0) {
    std::copy_n(disk.product.begin(), std::min<size_t>(disk.product.size(), 16), answer.begin() + 16);
  } else if (cdb[0] == 0x12 && cdb[2] == 0x80) {
    answer[1] = 0x80;
    answer[3] = static_cast<uint8_t>(disk.serial.size());
    std::copy(disk.serial.begin(), disk.serial.end(), answer.begin() + 4);
  } else if (cdb[0] == 0x12 && cdb[2] == 0xb0) {
    answer[1] = 0xb0;
    Put32(&answer[8], disk.max_transfer);
  } else if (cdb[0] == 0x12 && cdb[2] == 0xb2) {
    answer[1] = 0xb2;
    answer[5] = static_cast<uint8_t>((disk.unmap ? 0x84 : 0) | (disk.write_same_unmap ? 0x44 : 0));
  } else if (cdb[0] == 0x9e) {
    answer.resize(32);
    Put64(&answer[0], disk.blocks - 1);
    Put32(&answer[8], FakeDisk::kBlockSize);
  } else if (cdb[0] == 0x5a) {
    answer.resize(28);
    answer[3] = disk.takes_fua ? 0x10 : 0, answer[8] = 0x08;
    answer[10] = disk.write_cache ? 0x04 : 0;
  } else {
    answer.clear();
  }
  return answer;
}

}  // namespace lunkeeper::iscsi
