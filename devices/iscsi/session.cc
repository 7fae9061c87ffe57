#include "devices/iscsi/session.h"

#include <cstdarg>

namespace lunkeeper::iscsi {

Session::Session(const Connection& connection, uint32_t depth, SessionHandler* handler)
    : connection_(connection),
      handler_(handler),
      login_(connection),
      tasks_(depth),
      input_(std::make_unique<uint8_t[]>(kInputCapacity)) {
  free_.reserve(depth);
}

void Session::Begin() {
  full_feature_ = broken_ = refused_ = false;
  resetting_ = pinging_ = logging_out_ = false;
  free_.clear();
  for (uint32_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i] = Task();
    free_.push_back(i);
  }
  cmd_sn_ = max_cmd_sn_ = exp_cmd_sn_ = 1;
  exp_stat_sn_ = 0;
  unsent_commands_ = 0;
  input_begin_ = input_end_ = 0;
  large_data_ = false;
  data_in_.task = nullptr;
  send_head_ = send_tail_ = early_ = nullptr;
  control_count_ = 0;
  pdus_ = pieces_begin_ = pieces_end_ = 0;
  login_.Begin();
  SendLogin();
}

Task* Session::NewTask() {
  if (!full_feature_ || broken_ || free_.empty()) return nullptr;
  if (SerialLess(max_cmd_sn_, cmd_sn_ + unsent_commands_)) return nullptr;
  return &tasks_[free_.back()];
}

void Session::Start(Task* task) {
  const uint32_t slot = free_.back();
  free_.pop_back();
  task->transferred = 0;
  task->response = task->status = task->sense_key = task->asc = task->ascq = 0;
  task->internal = {};
  task->internal.tag = (++uses_ << 16) | slot;  // never kNoTag: there are fewer slots than that
  task->internal.active = true;
  ++unsent_commands_;
  QueueForSending(task);
}

void Session::Break(const char* what) {
  if (!broken_) failure_.Set("%s", what);
  broken_ = true;
}

bool Session::Violation(const char* format, ...) {
  char what[120];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (!broken_) failure_.Set("the target broke the protocol: %s", what);
  broken_ = true;
  return false;
}

}  // namespace lunkeeper::iscsi
