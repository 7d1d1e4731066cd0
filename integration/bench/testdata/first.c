/*
 * The program of the jail's measurements. Alone it says one byte and ends; as
 * "storm N" it says it when it has N children, who ignore what can be ignored
 * and of whom every thirtieth goes on to fork.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void child(int forks)
{
	for (int s = 1; s < 32; s++)
		if (s != SIGCHLD)
			signal(s, SIG_IGN);
	for (;;) {
		if (forks && fork() == 0)
			_exit(0);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		usleep(forks ? 1000 : 1000000);
	}
}

int main(int argc, char **argv)
{
	int n = argc == 3 && strcmp(argv[1], "storm") == 0 ? atoi(argv[2]) : 0;
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid < 0)
			return 1;
		if (pid == 0)
			child(i % 30 == 0);
	}
	if (write(1, "x", 1) != 1)
		return 1;
	if (n > 0)
		child(0);
	return 0;
}
