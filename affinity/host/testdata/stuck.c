/* Sleeps where no ordinary signal reaches it, state D, for the tests: a process
 * that has called vfork waits so for its child, and the child waits for its end.
 * Killing either ends both.
 *
 * "stuck thread" does that in a second thread, and ends the first one: a process
 * that looks like a zombie and still holds its namespaces. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *stick(void *unused)
{
	(void)unused;
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t t;
	alarm(120); /* whatever happens to the test, it ends */
	if (argc < 2 || strcmp(argv[1], "thread") != 0) {
		stick(0);
		return 0;
	}
	if (pthread_create(&t, 0, stick, 0) != 0)
		return 1;
	pthread_exit(0);
}
