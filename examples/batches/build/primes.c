/* How many primes there are up to a limit. */
int primes(int limit) {
    int count = 0;
    for (int n = 2; n <= limit; n++) {
        int divisor = 2;
        while (divisor * divisor <= n && n % divisor) divisor++;
        count += divisor * divisor > n;
    }
    return count;
}
