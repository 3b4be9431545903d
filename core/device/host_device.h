#pragma once

// LAMINA_HD marks functions that host and device code share. It is one of the
// project's three macros.
#if defined(__HIP__)
#define LAMINA_HD __attribute__((host, device))
#elif defined(__CUDACC__)
#define LAMINA_HD __host__ __device__
#else
#define LAMINA_HD
#endif
