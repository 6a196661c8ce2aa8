# The kernels of libhoro_cuda.so: nvcc compiles them into one image, which kernel_image.cc embeds. nvcc is looked for in
# .venv, where tools/setup installs it, then in PATH and in /usr/local/cuda. The plug-in is built without kernels where
# there is none that will do, or with -DHORO_NVCC=OFF.
#
# Sets HORO_KERNEL_SOURCE, which is one of the plug-in's sources.
set(HORO_KERNEL_SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/cuda/no_kernel_image.cc)
file(GLOB nvcc_in_venv ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu*/bin)
if(HORO_NVCC AND NOT EXISTS "${HORO_NVCC}")
  unset(HORO_NVCC CACHE)
endif()
find_program(HORO_NVCC nvcc HINTS ${nvcc_in_venv} PATHS /usr/local/cuda/bin)

# The processors: A100, H100, B200 and RTX 50; the PTX is for all others from A100 on.
set(NVCC_COMPILES -std=c++20 --expt-relaxed-constexpr -fmad=false -ccbin ${CMAKE_CXX_COMPILER} -arch=compute_80 -ptx)
set(NVCC_ASSEMBLES -fatbin "-gencode=arch=compute_80,code=[compute_80,sm_80,sm_90,sm_100,sm_120]" --compress-mode=size)

# Whether nvcc takes these options and this compiler.
function(horo_try_nvcc)
  set(trial ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc_trial)
  file(WRITE ${trial}.cu "#include <bit>\n#include <type_traits>\n__global__ void nothing() {}\n")
  execute_process(COMMAND ${HORO_NVCC} ${NVCC_COMPILES} ${trial}.cu -o ${trial}.ptx
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE errors)
  if(NOT failed)
    execute_process(COMMAND ${HORO_NVCC} ${NVCC_ASSEMBLES} ${trial}.ptx -o ${trial}.fatbin
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE errors)
  endif()
  execute_process(COMMAND ${HORO_NVCC} --version OUTPUT_VARIABLE words ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" found "${words}")
  if(failed OR NOT found)
    string(REGEX REPLACE "\n.*" "" errors "${errors}")
    set(HORO_NVCC_WORKS "no: ${errors}" CACHE INTERNAL "")
  else()
    math(EXPR version "1000 * ${CMAKE_MATCH_1} + 10 * ${CMAKE_MATCH_2}")
    set(HORO_NVCC_WORKS ${version} CACHE INTERNAL "")
  endif()
  set(HORO_NVCC_TRIED ${HORO_NVCC} CACHE INTERNAL "")
endfunction()

if(HORO_SANITIZE)
  message(STATUS "libhoro_cuda.so is built without kernels, as in every build with a sanitizer")
elseif(NOT HORO_NVCC)
  message(STATUS "libhoro_cuda.so is built without kernels: no nvcc in .venv, in PATH or in /usr/local/cuda/bin")
else()
  if(NOT "${HORO_NVCC_TRIED}" STREQUAL "${HORO_NVCC}")
    horo_try_nvcc()
  endif()
  if(NOT HORO_NVCC_WORKS MATCHES "^[0-9]+$")
    message(STATUS "libhoro_cuda.so is built without kernels: ${HORO_NVCC} does not compile them (${HORO_NVCC_WORKS})")
  else()
    message(STATUS "libhoro_cuda.so is built with kernels, by ${HORO_NVCC}")
    set(HORO_KERNEL_SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernel_image.cc)
  endif()
endif()

if(HORO_KERNEL_SOURCE MATCHES "/kernel_image.cc$")
  set(kernels ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  add_custom_command(OUTPUT ${kernels}.ptx
    COMMAND ${HORO_NVCC} ${NVCC_COMPILES} -I ${CMAKE_SOURCE_DIR} -MMD -MF ${kernels}.d -MT ${kernels}.ptx
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels.cu -o ${kernels}.ptx
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels.cu ${CMAKE_CURRENT_LIST_FILE} DEPFILE ${kernels}.d
    COMMENT "Compiling the kernels for GPUs" VERBATIM)
  add_custom_command(OUTPUT ${kernels}.fatbin
    COMMAND ${HORO_NVCC} ${NVCC_ASSEMBLES} ${kernels}.ptx -o ${kernels}.fatbin
    DEPENDS ${kernels}.ptx COMMENT "Assembling the kernels for GPUs" VERBATIM)
  set_source_files_properties(cuda/kernel_image.cc PROPERTIES
    OBJECT_DEPENDS ${kernels}.fatbin SKIP_UNITY_BUILD_INCLUSION ON
    COMPILE_DEFINITIONS "HORO_KERNEL_IMAGE=\"${kernels}.fatbin\";HORO_NVCC_VERSION=${HORO_NVCC_WORKS}")
endif()
