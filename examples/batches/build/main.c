#include <stdio.h>
#include <stdlib.h>

int primes(int limit);
int squares(int limit);

int main(int count, char **words) {
    int limit = count > 1 ? atoi(words[1]) : 10;
    printf("%d,%d\n", primes(limit), squares(limit));
    return 0;
}
