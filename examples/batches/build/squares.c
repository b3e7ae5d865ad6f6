/* The sum of the squares up to a limit. */
int squares(int limit) {
    int sum = 0;
    for (int n = 1; n <= limit; n++) sum += n * n;
    return sum;
}
