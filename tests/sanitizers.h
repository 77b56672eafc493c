/* Defines the sanitizers that a suite is built with: ADDRESS_SANITIZER, THREAD_SANITIZER, and SANITIZED for any. Some
 * things that suites do on purpose are reported by sanitizers or break their runtime. */
#ifndef DOORBELL_TESTS_SANITIZERS_H
#define DOORBELL_TESTS_SANITIZERS_H
#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__ /* gcc */
#define ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define THREAD_SANITIZER 1
#endif
/* For tests that omit waits: their programs have the races that ThreadSanitizer reports. */
#ifdef THREAD_SANITIZER
#define NO_THREAD_SANITIZER skip()
#else
#define NO_THREAD_SANITIZER ((void)0)
#endif
#if defined(THREAD_SANITIZER) || defined(ADDRESS_SANITIZER)
#define SANITIZED 1
#endif
#endif
