// The lanes of host SIMT as fibers.

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "lamina/core/device/simt/machine.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers and the stack pointer of one fiber and
// restores those of another.
extern "C" void lamina_simt_switch(void** from, void* to);
asm(R"(
.text
.globl lamina_simt_switch
.type lamina_simt_switch, @function
lamina_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lamina_simt_switch, . - lamina_simt_switch
)");
#else
#error "host SIMT switches fibers on x86-64 only"
#endif

namespace lamina::simt {
namespace {

constexpr size_t kStackBytes = 64 << 10;

void RunLane() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &machine->scheduler_stack,
                                  &machine->scheduler_stack_bytes);
#endif
  machine->kernel(machine->args);
  Park(State::kDone);
  std::abort();  // a lane that is done is never resumed
}

// Stacks are kept for the next launch on this host thread.
class StackPool {
 public:
  ~StackPool() {
    for (char* stack : stacks_) munmap(stack, kStackBytes);
  }
  char* Get(size_t index) {
    while (stacks_.size() <= index) {
      void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) {
        std::fprintf(stderr, "host SIMT: no memory for a lane's stack\n");
        std::abort();
      }
      stacks_.push_back(static_cast<char*>(stack));
    }
    return stacks_[index];
  }

 private:
  std::vector<char*> stacks_;
};
thread_local StackPool stack_pool;

}  // namespace

constinit thread_local Machine* machine = nullptr;

void Park(State state) {
  Lane& lane = Self();
  lane.state = state;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(state == State::kDone ? nullptr : &fake_stack,
                                 machine->scheduler_stack,
                                 machine->scheduler_stack_bytes);
#endif
  lamina_simt_switch(&lane.stack_pointer, machine->scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &machine->scheduler_stack,
                                  &machine->scheduler_stack_bytes);
#endif
}

void Resume(Block& block, int lane_index) {
  Machine& m = *machine;
  m.block = &block;
  m.lane = lane_index;
  Lane& lane = block.lanes[static_cast<size_t>(lane_index)];
  lane.state = State::kReady;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, lane.stack, kStackBytes);
#endif
  lamina_simt_switch(&m.scheduler, lane.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Prepare(Lane& lane, size_t index) {
  char* const stack = stack_pool.Get(index);
  lane = {};
  lane.stack = stack;
  // Six registers, the address of RunLane, and a place for its return address,
  // which leaves the stack aligned as at a call.
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
  top[0] = reinterpret_cast<void*>(&RunLane);
  top[1] = nullptr;
  for (int i = 1; i <= 6; ++i) top[-i] = nullptr;
  lane.stack_pointer = top - 6;
}

}  // namespace lamina::simt
