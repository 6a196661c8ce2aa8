// LibraryFunctions: finds the functions of a library that is loaded at run time, by their names.
#pragma once

#include <dlfcn.h>

#include <type_traits>

namespace horo {

class LibraryFunctions {
 public:
  explicit LibraryFunctions(void* library) : library_(library) {}

  // Sets the pointer to the function; null: the library has none of that name.
  template <class Pointer>
  void find(Pointer& function, const char* name) {
    void* const found = ::dlsym(library_, name);
    if (found == nullptr && missing_ == nullptr) missing_ = name;
    function = reinterpret_cast<std::remove_reference_t<Pointer>>(found);
  }

  // The first one that is missing; null: none.
  const char* missing() const { return missing_; }

 private:
  void* const library_;
  const char* missing_ = nullptr;
};

}  // namespace horo
