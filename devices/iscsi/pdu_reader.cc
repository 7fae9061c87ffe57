// The buffer holds what has been received and not yet handed out, from begin_ to end_; the remainder at its
// end is moved to the front before the next receive, mostly part of a header.
//
// Of a large Data-In PDU only the header comes by way of the buffer, if all goes well: InputSpace then offers
// the task's own memory first, and for one header more behind it. Small ones are cheaper to copy than to
// receive on their own.

#include "devices/iscsi/pdu_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lunkeeper::iscsi {

PduReader::PduReader() : buffer_(std::make_unique<uint8_t[]>(kCapacity)) {}

void PduReader::ForgetInput() {
  begin_ = 0;
  end_ = 0;
  large_data_ = false;
  data_in_.task = nullptr;
}

int PduReader::InputSpace(iovec space[2]) {
  int count = 0;
  if (data_in_.task != nullptr && data_in_.left > 0) {  // all that was in the buffer has been copied
    space[count++] = {data_in_.task->data + data_in_.task->internal.received, data_in_.left};
  }
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t room = kCapacity - end_;
  space[count++] = {buffer_.get() + end_, large_data_ ? std::min(room, kHeaderSize) : room};
  return count;
}

size_t PduReader::awaited_bytes() const {
  if (data_in_.task == nullptr) return 1;
  return std::clamp(data_in_.left, 1u, kAwaitAtMost);
}

void PduReader::AddInput(size_t count) {
  // The first bytes went to the first place that InputSpace offered.
  if (data_in_.task != nullptr) {
    const auto direct = static_cast<uint32_t>(std::min<size_t>(count, data_in_.left));
    data_in_.task->internal.received += direct;
    data_in_.left -= direct;
    count -= direct;
  }
  end_ += count;
}

PduReader::Found PduReader::CutNext(Pdu* pdu) {
  if (data_in_.task != nullptr) return ReceiveDataIn();
  const size_t available = end_ - begin_;
  if (available < kHeaderSize) return Found::kNothing;
  const uint8_t* header = buffer_.get() + begin_;
  const size_t data_at = kHeaderSize + size_t{header[kAhsLengthAt]} * 4;
  const uint32_t length = Get24(header + kDataLengthAt);
  *pdu = {.header = header, .data = header + data_at, .length = length, .size = data_at};
  if ((header[0] & kOpcodeMask) == kDataIn) return available < data_at ? Found::kNothing : Found::kDataIn;
  pdu->size = data_at + length + Padding(length);
  if (pdu->size > kCapacity) return Found::kTooLong;
  if (available < pdu->size) return Found::kNothing;
  large_data_ = false;
  begin_ += pdu->size;
  return Found::kPdu;
}

void PduReader::BeginDataIn(Task* task, const Pdu& pdu) {
  data_in_.task = task;
  data_in_.left = pdu.length;
  std::memcpy(data_in_.header.data(), pdu.header, kHeaderSize);
  large_data_ = pdu.length >= kLargeData;
  begin_ += pdu.size;
}

// Copies what of the data came by way of the buffer. The padding after them always does.
PduReader::Found PduReader::ReceiveDataIn() {
  auto& state = data_in_.task->internal;
  const auto available = static_cast<uint32_t>(end_ - begin_);
  const uint32_t take = std::min(available, data_in_.left);
  if (take > 0) std::memcpy(data_in_.task->data + state.received, buffer_.get() + begin_, take);
  state.received += take;
  data_in_.left -= take;
  begin_ += take;
  const uint32_t padding = Padding(Get24(data_in_.header.data() + kDataLengthAt));
  if (data_in_.left > 0 || available - take < padding) return Found::kNothing;
  begin_ += padding;
  return Found::kDataInEnd;
}

Task* PduReader::EndDataIn() { return std::exchange(data_in_.task, nullptr); }

}  // namespace lunkeeper::iscsi
